/* Of cuDNN's oldest interface, convolutions: forward, of data and of weights, in up to three dimensions, with
   groups and dilation, as plain f32 sums. The first algorithm offered for a gradient adds in another order
   each time, as the real one does. */
#include "tests/simulation/cuda/dnn.h"

#include <stdlib.h>

#include "common/base/memory.h"

enum { WORKSPACE_BYTES = 1 << 14 };

enum pass { PASS_FORWARD, PASS_DATA, PASS_FILTER };

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out) {
  *out = mem_new(sizeof **out);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  free(filter);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int n, const int dims[]) {
  int strides[DNN_DIMS], elems = 1;
  if (!filter || n < 4 || n > DNN_DIMS)
    return CUDNN_STATUS_BAD_PARAM;
  if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)
    return CUDNN_STATUS_NOT_SUPPORTED;
  strides[1] = 1;
  if (format == CUDNN_TENSOR_NHWC)
    elems = dims[1];
  for (int i = n - 1; i >= 2; i--) {
    strides[i] = elems;
    elems *= dims[i];
  }
  if (format == CUDNN_TENSOR_NCHW) {
    strides[1] = elems;
    elems *= dims[1];
  }
  strides[0] = elems;
  return cudnnSetTensorNdDescriptor(&filter->tensor, type, n, dims, strides);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out) {
  *out = mem_new(sizeof **out);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  free(convolution);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int n,
                                              const int pad[], const int stride[], const int dilation[],
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (!convolution || n < 2 || n > 3)
    return CUDNN_STATUS_BAD_PARAM;
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT)
    return CUDNN_STATUS_NOT_SUPPORTED;
  *convolution = (struct cudnnConvolutionStruct){
      .n_spatial = n, .groups = 1, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .math = CUDNN_DEFAULT_MATH};
  for (int i = 0; i < n; i++) {
    if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1)
      return CUDNN_STATUS_BAD_PARAM;
    convolution->pad[3 - n + i] = pad[i];
    convolution->stride[3 - n + i] = stride[i];
    convolution->dilation[3 - n + i] = dilation[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (groups < 1)
    return CUDNN_STATUS_BAD_PARAM;
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

/* A convolution of whichever pass: y of x and w. */
struct conv {
  enum pass pass;
  struct cudnnTensorStruct x, w, y;
  struct cudnnConvolutionStruct conv;
};

static cudnnStatus_t conv_check(const struct conv *it) {
  const struct cudnnConvolutionStruct *conv = &it->conv;
  if (it->x.type != it->y.type || it->x.type != it->w.type)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (it->x.n_dims != conv->n_spatial + 2 || it->y.n_dims != it->x.n_dims || it->w.n_dims != it->x.n_dims ||
      it->x.dims[0] != it->y.dims[0] || it->w.dims[0] != it->y.dims[1] || it->w.dims[0] % conv->groups ||
      it->w.dims[1] * conv->groups != it->x.dims[1])
    return CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < 3; i++) {
    int64_t reach = (it->w.dims[2 + i] - 1) * conv->dilation[i] + 1;
    int64_t room = it->x.dims[2 + i] + 2 * conv->pad[i] - reach;
    if (room < 0 || it->y.dims[2 + i] != room / conv->stride[i] + 1)
      return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

static struct conv conv_of(enum pass pass, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                           cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y) {
  return (struct conv){pass, *x, w->tensor, *y, *conv};
}

struct conv_op {
  struct sim_op op;
  struct conv conv;
  bool is_any_order;
  float alpha, beta;
  void *x, *w, *y, *workspace;
  size_t workspace_bytes;
};

/* Rows that one tap brings together: x[first + i * stride] with y[i], i in [begin, end). */
struct rows {
  float *x, *y, *w;
  int64_t begin, end, stride;
};

static void add_rows(enum pass pass, const struct rows *it) {
  float sum = 0.0f, w = *it->w;
  switch (pass) {
  case PASS_FORWARD:
    for (int64_t i = it->begin; i < it->end; i++)
      it->y[i] += w * it->x[i * it->stride];
    break;
  case PASS_DATA:
    for (int64_t i = it->begin; i < it->end; i++)
      it->x[i * it->stride] += w * it->y[i];
    break;
  case PASS_FILTER:
    for (int64_t i = it->begin; i < it->end; i++)
      sum += it->x[i * it->stride] * it->y[i];
    *it->w += sum;
    break;
  }
}

/* One plane of x with one of y, by one plane of taps. */
static void add_planes(const struct conv *it, float *x, float *w, float *y) {
  const struct cudnnConvolutionStruct *c = &it->conv;
  const int64_t *in = it->x.dims + 2, *taps = it->w.dims + 2, *out = it->y.dims + 2;
  for (int64_t t = 0; t < taps[0] * taps[1] * taps[2]; t++) {
    int64_t kd = t / (taps[1] * taps[2]), kh = t / taps[2] % taps[1], kw = t % taps[2];
    int64_t first = kw * c->dilation[2] - c->pad[2]; /* of x, for the first of y; may lie before it */
    struct rows rows = {.w = w + t, .stride = c->stride[2]};
    while (rows.begin < out[2] && first + rows.begin * rows.stride < 0)
      rows.begin++;
    rows.end = rows.begin;
    while (rows.end < out[2] && first + rows.end * rows.stride < in[2])
      rows.end++;
    for (int64_t od = 0; od < out[0]; od++)
      for (int64_t oh = 0; oh < out[1]; oh++) {
        int64_t id = od * c->stride[0] + kd * c->dilation[0] - c->pad[0];
        int64_t ih = oh * c->stride[1] + kh * c->dilation[1] - c->pad[1];
        if (id < 0 || id >= in[0] || ih < 0 || ih >= in[1] || rows.begin == rows.end)
          continue;
        rows.x = x + (id * in[1] + ih) * in[2] + first;
        rows.y = y + (od * out[1] + oh) * out[2];
        add_rows(it->pass, &rows);
      }
  }
}

static void convolve(const struct conv_op *op, float *x, float *w, float *y) {
  const struct conv *it = &op->conv;
  int64_t in = it->x.dims[2] * it->x.dims[3] * it->x.dims[4],
          out = it->y.dims[2] * it->y.dims[3] * it->y.dims[4];
  int64_t taps = it->w.dims[2] * it->w.dims[3] * it->w.dims[4], per_group = it->w.dims[1];
  int64_t outs = it->w.dims[0] / it->conv.groups, n = it->x.dims[0];
  int64_t turn = op->is_any_order ? (int64_t)(sim_random() % (uint64_t)n) : 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < it->w.dims[0]; k++)
      for (int64_t c = 0; c < per_group; c++) {
        int64_t batch = (i + turn) % n, channel = k / outs * per_group + c;
        add_planes(it, x + (batch * it->x.dims[1] + channel) * in, w + (k * per_group + c) * taps,
                   y + (batch * it->y.dims[1] + k) * out);
      }
}

/* What a pass reads, as it is; what it makes, as zeros. */
static float *take(const struct cudnnTensorStruct *tensor, const void *from, bool is_made, bool is_tf32) {
  return is_made ? calloc((size_t)dnn_elems(tensor), sizeof(float)) : dnn_pack(tensor, from, is_tf32);
}

static enum sim_progress conv_run(struct sim_op *base, void **state, int device) {
  struct conv_op *op = (struct conv_op *)base;
  const struct conv *it = &op->conv;
  bool is_tf32 = it->x.type == NUMBER_F32 && it->conv.math != CUDNN_FMA_MATH;
  float *x = take(&it->x, op->x, it->pass == PASS_DATA, is_tf32);
  float *w = take(&it->w, op->w, it->pass == PASS_FILTER, is_tf32);
  float *y = take(&it->y, op->y, it->pass == PASS_FORWARD, is_tf32);
  (void)state;
  memset(op->workspace, 0xff, op->workspace_bytes);
  if (!x || !w || !y) {
    sim_device_lose(device, cudaErrorUnknown, "memory of the host");
  } else {
    convolve(op, x, w, y);
    if (it->pass == PASS_FORWARD)
      dnn_unpack(&it->y, y, op->y, op->alpha, op->beta);
    else if (it->pass == PASS_DATA)
      dnn_unpack(&it->x, x, op->x, op->alpha, op->beta);
    else
      dnn_unpack(&it->w, w, op->w, op->alpha, op->beta);
  }
  free(x);
  free(w);
  free(y);
  return SIM_DONE;
}

/* With what arithmetic an algorithm is offered, and nothing else executed: channels in odd numbers have none
   of the tensor cores'. */
static cudnnMathType_t math_of(const struct conv *conv) {
  bool is_odd = conv->w.dims[1] % 2 || conv->w.dims[0] % 2;
  return conv->conv.math == CUDNN_TENSOR_OP_MATH && is_odd ? CUDNN_DEFAULT_MATH : conv->conv.math;
}

struct scales {
  const void *alpha, *beta;
};

struct bytes {
  const void *x, *w, *y;
  void *workspace;
  size_t workspace_bytes;
};

static cudnnStatus_t conv_enqueue(cudnnHandle_t handle, const struct conv *conv, bool is_any_order,
                                  struct scales scales, const struct bytes *bytes) {
  cudnnStatus_t status = conv_check(conv);
  struct conv_op *op;
  if (!status && math_of(conv) != conv->conv.math)
    status = CUDNN_STATUS_NOT_SUPPORTED;
  if (!status && (!dnn_is_device(&conv->x, bytes->x) || !dnn_is_device(&conv->w, bytes->w) ||
                  !dnn_is_device(&conv->y, bytes->y) || bytes->workspace_bytes < WORKSPACE_BYTES ||
                  !sim_is_device(bytes->workspace, bytes->workspace_bytes)))
    status = CUDNN_STATUS_BAD_PARAM;
  if (status) {
    sim_complain("a convolution by cuDNN: %s", cudnnGetErrorString(status));
    return status;
  }
  op = sim_op_new(sizeof *op, "convolution", conv_run);
  op->conv = *conv;
  op->is_any_order = is_any_order;
  op->alpha = *(const float *)scales.alpha;
  op->beta = *(const float *)scales.beta;
  op->x = (void *)bytes->x;
  op->w = (void *)bytes->w;
  op->y = (void *)bytes->y;
  op->workspace = bytes->workspace;
  op->workspace_bytes = WORKSPACE_BYTES;
  return dnn_enqueue(handle, &op->op);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                      const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                      cudnnConvolutionDescriptor_t desc, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_desc, void *y) {
  struct conv conv = conv_of(PASS_FORWARD, x_desc, w_desc, desc, y_desc);
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return conv_enqueue(handle, &conv, false, (struct scales){alpha, beta},
                      &(struct bytes){x, w, y, workspace, workspace_bytes});
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_desc, const void *w,
                                           cudnnTensorDescriptor_t y_desc, const void *y,
                                           cudnnConvolutionDescriptor_t desc,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t workspace_bytes, const void *beta,
                                           cudnnTensorDescriptor_t x_desc, void *x) {
  struct conv conv = conv_of(PASS_DATA, x_desc, w_desc, desc, y_desc);
  if (algorithm > CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return conv_enqueue(handle, &conv, algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                      (struct scales){alpha, beta}, &(struct bytes){x, w, y, workspace, workspace_bytes});
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_desc, const void *x,
                                             cudnnTensorDescriptor_t y_desc, const void *y,
                                             cudnnConvolutionDescriptor_t desc,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t workspace_bytes, const void *beta,
                                             cudnnFilterDescriptor_t w_desc, void *w) {
  struct conv conv = conv_of(PASS_FILTER, x_desc, w_desc, desc, y_desc);
  if (algorithm > CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return conv_enqueue(handle, &conv, algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
                      (struct scales){alpha, beta}, &(struct bytes){x, w, y, workspace, workspace_bytes});
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t desc,
                                                     cudnnTensorDescriptor_t y, int asked, int *found,
                                                     cudnnConvolutionFwdAlgoPerf_t *results) {
  struct conv conv = conv_of(PASS_FORWARD, x, w, desc, y);
  cudnnStatus_t status = conv_check(&conv);
  (void)handle;
  *found = 0;
  if (status || asked < 2)
    return status ? status : CUDNN_STATUS_BAD_PARAM;
  results[0] = (cudnnConvolutionFwdAlgoPerf_t){.algo = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
                                               .status = CUDNN_STATUS_NOT_SUPPORTED,
                                               .determinism = CUDNN_DETERMINISTIC};
  results[1] = (cudnnConvolutionFwdAlgoPerf_t){.algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                               .status = CUDNN_STATUS_SUCCESS,
                                               .memory = WORKSPACE_BYTES,
                                               .determinism = CUDNN_DETERMINISTIC,
                                               .mathType = math_of(&conv)};
  *found = 2;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t y,
                                                          cudnnConvolutionDescriptor_t desc,
                                                          cudnnTensorDescriptor_t x, int asked, int *found,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *results) {
  struct conv conv = conv_of(PASS_DATA, x, w, desc, y);
  cudnnStatus_t status = conv_check(&conv);
  (void)handle;
  *found = 0;
  if (status || asked < 2)
    return status ? status : CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < 2; i++)
    results[i] = (cudnnConvolutionBwdDataAlgoPerf_t){
        .algo = i ? CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 : CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
        .memory = WORKSPACE_BYTES,
        .determinism = i ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
        .mathType = math_of(&conv)};
  *found = 2;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t y,
                                                            cudnnConvolutionDescriptor_t desc,
                                                            cudnnFilterDescriptor_t w, int asked, int *found,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *results) {
  struct conv conv = conv_of(PASS_FILTER, x, w, desc, y);
  cudnnStatus_t status = conv_check(&conv);
  (void)handle;
  *found = 0;
  if (status || asked < 2)
    return status ? status : CUDNN_STATUS_BAD_PARAM;
  for (int i = 0; i < 2; i++)
    results[i] = (cudnnConvolutionBwdFilterAlgoPerf_t){
        .algo = i ? CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 : CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
        .memory = WORKSPACE_BYTES,
        .determinism = i ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
        .mathType = math_of(&conv)};
  *found = 2;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t desc,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t *bytes) {
  struct conv conv = conv_of(PASS_FORWARD, x, w, desc, y);
  (void)handle, (void)algorithm;
  *bytes = WORKSPACE_BYTES;
  return conv_check(&conv);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t y,
                                                           cudnnConvolutionDescriptor_t desc,
                                                           cudnnTensorDescriptor_t x,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                                           size_t *bytes) {
  struct conv conv = conv_of(PASS_DATA, x, w, desc, y);
  (void)handle, (void)algorithm;
  *bytes = WORKSPACE_BYTES;
  return conv_check(&conv);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t y,
                                                             cudnnConvolutionDescriptor_t desc,
                                                             cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                                             size_t *bytes) {
  struct conv conv = conv_of(PASS_FILTER, x, w, desc, y);
  (void)handle, (void)algorithm;
  *bytes = WORKSPACE_BYTES;
  return conv_check(&conv);
}

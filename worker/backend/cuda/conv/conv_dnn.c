/* Convolutions by cuDNN's oldest interface, which needs no plans: what it supports it says when asked for an
   algorithm and again for its workspace. */
#include "worker/backend/cuda/conv/conv_dnn.h"

#include <limits.h>
#include <stdlib.h>

#include "worker/backend/cuda/conv/conv_choices.h"

enum { SPATIAL_MIN = 2, DIMS_MAX = 2 + CUDA_CONV_DIMS, ALGORITHMS_MAX = 16, WORKSPACE_MAX = 256 << 20 };

struct conv_dnn {
  enum conv_pass pass;
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  struct conv_choice choice;
};

/* What cuDNN's three structs of this kind have in common. */
struct candidate {
  int algorithm;
  cudnnStatus_t status;
  cudnnDeterminism_t determinism;
  cudnnMathType_t math;
};

static cudnnDataType_t data_type(enum cuda_type type) {
  return type == CUDA_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* cuDNN wants two spatial dimensions at least: a line is an image of height 1. */
static int spatial_dims(const struct cuda_conv *conv) {
  return conv->dims > SPATIAL_MIN ? conv->dims : SPATIAL_MIN;
}

/* The last `n` of the three dimensions. */
static void put_last(int *to, const int64_t *from, int n) {
  for (int i = 0; i < n; i++)
    to[i] = (int)from[CUDA_CONV_DIMS - n + i];
}

/* What all three tensors have in common. */
struct form {
  cudnnDataType_t type;
  enum cuda_layout layout;
};

static cudnnStatus_t tensor_new(cudnnTensorDescriptor_t *desc, const struct cuda_conv *conv, int64_t channels,
                                const int64_t *spatial, struct form form) {
  int n = spatial_dims(conv), dims[DIMS_MAX] = {(int)conv->n, (int)channels}, strides[DIMS_MAX], elems = 1;
  cudnnStatus_t status = cudnnCreateTensorDescriptor(desc);
  put_last(dims + 2, spatial, n);
  strides[1] = 1;
  if (form.layout == CUDA_CHANNELS_LAST)
    elems = dims[1];
  for (int d = 1 + n; d >= 2; d--) {
    strides[d] = elems;
    elems *= dims[d];
  }
  if (form.layout != CUDA_CHANNELS_LAST) {
    strides[1] = elems;
    elems *= dims[1];
  }
  strides[0] = elems;
  return status ? status : cudnnSetTensorNdDescriptor(*desc, form.type, 2 + n, dims, strides);
}

static cudnnStatus_t filter_new(struct conv_dnn *own, const struct cuda_conv *conv, struct form form) {
  int n = spatial_dims(conv), dims[DIMS_MAX] = {(int)(conv->groups * conv->group_out), (int)conv->group_in};
  cudnnTensorFormat_t format = form.layout == CUDA_CHANNELS_LAST ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  cudnnStatus_t status = cudnnCreateFilterDescriptor(&own->w);
  put_last(dims + 2, conv->kernel, n);
  return status ? status : cudnnSetFilterNdDescriptor(own->w, form.type, format, 2 + n, dims);
}

/* FMA: products of f32 as they are. DEFAULT: factors may be rounded to TF32. */
static cudnnMathType_t math_type(enum precision precision, enum cuda_type type) {
  if (type == CUDA_BF16)
    return CUDNN_TENSOR_OP_MATH;
  return precision == PRECISION_F32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

static cudnnStatus_t convolution_new(struct conv_dnn *own, const struct cuda_conv *conv,
                                     cudnnMathType_t math) {
  int n = spatial_dims(conv), pads[CUDA_CONV_DIMS], strides[CUDA_CONV_DIMS], dilations[CUDA_CONV_DIMS];
  cudnnStatus_t status = cudnnCreateConvolutionDescriptor(&own->conv);
  put_last(pads, conv->pad, n);
  put_last(strides, conv->stride, n);
  put_last(dilations, conv->dilation, n);
  if (!status)
    status = cudnnSetConvolutionNdDescriptor(own->conv, n, pads, strides, dilations, CUDNN_CROSS_CORRELATION,
                                             CUDNN_DATA_FLOAT);
  if (!status)
    status = cudnnSetConvolutionGroupCount(own->conv, (int)conv->groups);
  return status ? status : cudnnSetConvolutionMathType(own->conv, math);
}

/* Each fills candidates, best first, and returns how many there are. */
static int candidates_forward(cudnnHandle_t dnn, const struct conv_dnn *own, struct candidate *candidates) {
  cudnnConvolutionFwdAlgoPerf_t found[ALGORITHMS_MAX];
  int n = 0;
  if (cudnnGetConvolutionForwardAlgorithm_v7(dnn, own->x, own->w, own->conv, own->y, ALGORITHMS_MAX, &n,
                                             found))
    return 0;
  for (int i = 0; i < n; i++)
    candidates[i] =
        (struct candidate){(int)found[i].algo, found[i].status, found[i].determinism, found[i].mathType};
  return n;
}

static int candidates_data(cudnnHandle_t dnn, const struct conv_dnn *own, struct candidate *candidates) {
  cudnnConvolutionBwdDataAlgoPerf_t found[ALGORITHMS_MAX];
  int n = 0;
  if (cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, own->w, own->y, own->conv, own->x, ALGORITHMS_MAX, &n,
                                                  found))
    return 0;
  for (int i = 0; i < n; i++)
    candidates[i] =
        (struct candidate){(int)found[i].algo, found[i].status, found[i].determinism, found[i].mathType};
  return n;
}

static int candidates_weight(cudnnHandle_t dnn, const struct conv_dnn *own, struct candidate *candidates) {
  cudnnConvolutionBwdFilterAlgoPerf_t found[ALGORITHMS_MAX];
  int n = 0;
  if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, own->x, own->y, own->conv, own->w, ALGORITHMS_MAX,
                                                    &n, found))
    return 0;
  for (int i = 0; i < n; i++)
    candidates[i] =
        (struct candidate){(int)found[i].algo, found[i].status, found[i].determinism, found[i].mathType};
  return n;
}

static cudnnStatus_t ask_workspace(cudnnHandle_t dnn, const struct conv_dnn *own, int algorithm,
                                   size_t *bytes) {
  switch (own->pass) {
  case CONV_FORWARD:
    return cudnnGetConvolutionForwardWorkspaceSize(dnn, own->x, own->w, own->conv, own->y,
                                                   (cudnnConvolutionFwdAlgo_t)algorithm, bytes);
  case CONV_DATA:
    return cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, own->w, own->y, own->conv, own->x,
                                                        (cudnnConvolutionBwdDataAlgo_t)algorithm, bytes);
  default:
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, own->x, own->y, own->conv, own->w,
                                                          (cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes);
  }
}

/* cuDNN says which algorithms give the same bits; those that its manual names as adding in any order are
   left out whatever it says. */
static bool is_same_bits(enum conv_pass pass, const struct candidate *candidate) {
  if (pass == CONV_DATA && candidate->algorithm == (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_0)
    return false;
  if (pass == CONV_WEIGHT && (candidate->algorithm == (int)CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ||
                              candidate->algorithm == (int)CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3))
    return false;
  return candidate->determinism == CUDNN_DETERMINISTIC;
}

/* An algorithm goes with the arithmetic that it was offered with: asked for by another one it may be refused
   when it is executed. Never with less precision than the program's. */
static bool takes_math(struct conv_dnn *own, const struct candidate *candidate, cudnnMathType_t wanted) {
  own->choice.math = wanted == CUDNN_FMA_MATH ? wanted : candidate->math;
  if (candidate->math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
      (wanted == CUDNN_FMA_MATH && candidate->math == CUDNN_TENSOR_OP_MATH))
    return false;
  return cudnnSetConvolutionMathType(own->conv, own->choice.math) == CUDNN_STATUS_SUCCESS;
}

static void algorithm_rank(cudnnHandle_t dnn, struct conv_dnn *own, const struct conv_question *question) {
  struct conv_choice *choice = &own->choice;
  struct candidate candidates[ALGORITHMS_MAX];
  int n = own->pass == CONV_FORWARD ? candidates_forward(dnn, own, candidates)
          : own->pass == CONV_DATA  ? candidates_data(dnn, own, candidates)
                                    : candidates_weight(dnn, own, candidates);
  for (int i = 0; i < n && !choice->is_taken; i++) {
    const struct candidate *candidate = &candidates[i];
    if (candidate->status || (!question->is_fast && !is_same_bits(own->pass, candidate)) ||
        !takes_math(own, candidate, question->math))
      continue;
    choice->algorithm = candidate->algorithm;
    choice->is_taken = !ask_workspace(dnn, own, candidate->algorithm, &choice->workspace_bytes) &&
                       choice->workspace_bytes <= WORKSPACE_MAX;
  }
}

/* False where there is none. */
static bool algorithm_choose(cudnnHandle_t dnn, struct conv_dnn *own, const struct conv_question *question) {
  if (!conv_choice_find(question, &own->choice)) {
    algorithm_rank(dnn, own, question);
    conv_choice_keep(question, &own->choice);
  }
  return own->choice.is_taken &&
         cudnnSetConvolutionMathType(own->conv, own->choice.math) == CUDNN_STATUS_SUCCESS;
}

/* Dimensions are ints to cuDNN, and so are its offsets. */
static bool conv_fits(const struct cuda_conv *conv) {
  int64_t in_channels = conv->groups * conv->group_in, out_channels = conv->groups * conv->group_out;
  for (int d = 0; d < CUDA_CONV_DIMS; d++)
    if (conv->stride[d] > INT_MAX || conv->dilation[d] > INT_MAX || conv->pad[d] > INT_MAX)
      return false;
  return conv->n * in_channels * conv->in_elems <= INT_MAX &&
         conv->n * out_channels * conv->out_elems <= INT_MAX &&
         out_channels * conv->group_in * conv->taps <= INT_MAX;
}

struct conv_dnn *conv_dnn_new(struct backend_program *program, enum conv_pass pass,
                              const struct cuda_conv *conv, enum cuda_type type, enum cuda_layout layout) {
  const struct cuda_program_view *view = cuda_view(program);
  struct form form = {.type = data_type(type), .layout = layout};
  struct conv_question question = {.pass = pass,
                                   .type = type,
                                   .layout = layout,
                                   .math = math_type(view->options.precision, type),
                                   .is_fast = view->options.is_fast,
                                   .device = view->options.device,
                                   .conv = *conv};
  if (!conv_fits(conv))
    return NULL;
  struct conv_dnn *own = mem_new(sizeof *own);
  own->pass = pass;
  if (!tensor_new(&own->x, conv, conv->groups * conv->group_in, conv->in, form) &&
      !tensor_new(&own->y, conv, conv->groups * conv->group_out, conv->out, form) &&
      !filter_new(own, conv, form) && !convolution_new(own, conv, question.math) &&
      algorithm_choose(view->dnn, own, &question))
    return own;
  conv_dnn_free(own);
  return NULL;
}

void conv_dnn_free(struct conv_dnn *own) {
  if (!own)
    return;
  if (own->x)
    cudnnDestroyTensorDescriptor(own->x);
  if (own->y)
    cudnnDestroyTensorDescriptor(own->y);
  if (own->w)
    cudnnDestroyFilterDescriptor(own->w);
  if (own->conv)
    cudnnDestroyConvolutionDescriptor(own->conv);
  free(own);
}

size_t conv_dnn_workspace_bytes(const struct conv_dnn *own) {
  return own->choice.workspace_bytes;
}

int conv_dnn_enqueue(struct backend_program *program, const struct conv_dnn *own, const struct node *node,
                     const struct conv_dnn_io *io, struct err *err) {
  cudnnHandle_t dnn = cuda_view(program)->dnn;
  const float one = 1, zero = 0;
  size_t bytes = own->choice.workspace_bytes;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (own->pass) {
  case CONV_FORWARD:
    status = cudnnConvolutionForward(dnn, &one, own->x, io->x, own->w, io->w, own->conv,
                                     (cudnnConvolutionFwdAlgo_t)own->choice.algorithm, io->workspace, bytes,
                                     &zero, own->y, io->y);
    break;
  case CONV_DATA:
    status = cudnnConvolutionBackwardData(dnn, &one, own->w, io->w, own->y, io->y, own->conv,
                                          (cudnnConvolutionBwdDataAlgo_t)own->choice.algorithm, io->workspace,
                                          bytes, &zero, own->x, io->x);
    break;
  case CONV_WEIGHT:
    status = cudnnConvolutionBackwardFilter(dnn, &one, own->x, io->x, own->y, io->y, own->conv,
                                            (cudnnConvolutionBwdFilterAlgo_t)own->choice.algorithm,
                                            io->workspace, bytes, &zero, own->w, io->w);
    break;
  }
  return cuda_dnn_check(node, status, "convolve", err);
}

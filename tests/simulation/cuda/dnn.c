/* Of cuDNN: its handles, and tensors. */
#include "tests/simulation/cuda/dnn.h"

#include <stdlib.h>

#include "common/base/memory.h"

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
  if (sim_capture_forbids() || sim_device_error(sim_device()))
    return CUDNN_STATUS_NOT_INITIALIZED;
  *out = mem_new(sizeof **out);
  (*out)->device = sim_device();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle || sim_stream_of(stream)->device != handle->device)
    return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) {
  return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
  case CUDNN_STATUS_SUCCESS:
    return "CUDNN_STATUS_SUCCESS";
  case CUDNN_STATUS_NOT_INITIALIZED:
    return "CUDNN_STATUS_NOT_INITIALIZED";
  case CUDNN_STATUS_BAD_PARAM:
    return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED:
    return "CUDNN_STATUS_NOT_SUPPORTED";
  case CUDNN_STATUS_EXECUTION_FAILED:
    return "CUDNN_STATUS_EXECUTION_FAILED";
  default:
    return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

cudnnStatus_t dnn_enqueue(cudnnHandle_t handle, struct sim_op *op) {
  op->is_work = true;
  if (handle->device != sim_device()) {
    sim_complain("%s: its handle is of device %d, the thread is on device %d", op->name, handle->device,
                 sim_device());
    sim_op_put(op);
    return CUDNN_STATUS_BAD_PARAM;
  }
  return sim_enqueue(sim_stream_of(handle->stream), op) ? CUDNN_STATUS_EXECUTION_FAILED
                                                        : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out) {
  *out = mem_new(sizeof **out);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  free(tensor);
  return CUDNN_STATUS_SUCCESS;
}

/* Dimension i of n, among DNN_DIMS. */
static int place_of(int i, int n) {
  return i < 2 ? i : DNN_DIMS - n + i;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int n,
                                         const int dims[], const int strides[]) {
  if (!tensor || n < 4 || n > DNN_DIMS)
    return CUDNN_STATUS_BAD_PARAM;
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16)
    return CUDNN_STATUS_NOT_SUPPORTED;
  tensor->type = type == CUDNN_DATA_FLOAT ? NUMBER_F32 : NUMBER_BF16;
  tensor->n_dims = n;
  for (int i = 0; i < DNN_DIMS; i++) {
    tensor->dims[i] = 1;
    tensor->strides[i] = 0;
  }
  for (int i = 0; i < n; i++) {
    if (dims[i] < 1 || strides[i] < 1)
      return CUDNN_STATUS_BAD_PARAM;
    tensor->dims[place_of(i, n)] = dims[i];
    tensor->strides[place_of(i, n)] = strides[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

int64_t dnn_elems(const struct cudnnTensorStruct *tensor) {
  int64_t elems = 1;
  for (int i = 0; i < DNN_DIMS; i++)
    elems *= tensor->dims[i];
  return elems;
}

bool dnn_is_device(const struct cudnnTensorStruct *tensor, const void *at) {
  int64_t last = 0;
  for (int i = 0; i < DNN_DIMS; i++)
    last += (tensor->dims[i] - 1) * tensor->strides[i];
  return sim_is_device(at, (size_t)(last + 1) * number_size(tensor->type));
}

/* Where dense element i lies. */
static int64_t offset_of(const struct cudnnTensorStruct *tensor, int64_t i) {
  int64_t offset = 0;
  for (int d = DNN_DIMS - 1; d >= 0; d--) {
    offset += i % tensor->dims[d] * tensor->strides[d];
    i /= tensor->dims[d];
  }
  return offset;
}

float *dnn_pack(const struct cudnnTensorStruct *tensor, const void *from, bool is_tf32) {
  int64_t elems = dnn_elems(tensor);
  float *dense = malloc((size_t)elems * sizeof *dense);
  for (int64_t i = 0; dense && i < elems; i++) {
    float x = number_load(tensor->type, from, offset_of(tensor, i));
    dense[i] = is_tf32 ? number_to_tf32(x) : x;
  }
  return dense;
}

void dnn_unpack(const struct cudnnTensorStruct *tensor, const float *dense, void *to, float alpha,
                float beta) {
  int64_t elems = dnn_elems(tensor);
  for (int64_t i = 0; i < elems; i++) {
    int64_t at = offset_of(tensor, i);
    float x = alpha * dense[i];
    if (beta != 0.0f)
      x += beta * number_load(tensor->type, to, at);
    number_store(tensor->type, to, at, x);
  }
}

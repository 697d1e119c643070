/* Elements of tensors of integers and bools. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_INTEGER_CUH
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_INTEGER_CUH

#include "worker/backend/cuda/engine/tensor.h"

static __device__ inline int64_t cuda_integer(const struct cuda_tensor *t, int64_t i) {
  switch (t->type) {
  case CUDA_I64:
    return ((const int64_t *)t->data)[i];
  case CUDA_I32:
    return ((const int32_t *)t->data)[i];
  default:
    return ((const uint8_t *)t->data)[i];
  }
}

/* A number that does not fit wraps. */
static __device__ inline void cuda_put_integer(const struct cuda_tensor *t, int64_t i, int64_t x) {
  switch (t->type) {
  case CUDA_I64:
    ((int64_t *)t->data)[i] = x;
    break;
  case CUDA_I32:
    ((int32_t *)t->data)[i] = (int32_t)x;
    break;
  default:
    ((uint8_t *)t->data)[i] = (uint8_t)x;
  }
}

#endif

/* What batch norm, its activations and their gradients make of an element. It is in one place because values
   that are computed again must have the same bits. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_CUH
#define WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_CUH

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/rows/norm.h"

/* factor = inv_std scale */
static __device__ __forceinline__ float cuda_norm_of(float x, float mean, float factor, float bias) {
  return fmaf(x - mean, factor, bias);
}

static __device__ __forceinline__ float cuda_activate(const struct cuda_activation *activation, float x) {
  if (activation->kind == ACTIVATION_RELU)
    return x < 0.0f ? 0.0f : x;
  if (activation->kind == ACTIVATION_CLIP) {
    x = x < activation->low ? activation->low : x;
    return x > activation->high ? activation->high : x;
  }
  return x;
}

static __device__ __forceinline__ bool cuda_lets_through(const struct cuda_activation *activation, float y) {
  if (activation->kind == ACTIVATION_RELU)
    return y > 0.0f;
  return activation->kind == ACTIVATION_NONE || (y > activation->low && y < activation->high);
}

static __device__ __forceinline__ float cuda_rounded(float x, bool is_rounded) {
  return is_rounded ? cuda_from_bf16(cuda_to_bf16(x)) : x;
}

/* y of masking's activation, computed again. */
static __device__ __forceinline__ float cuda_norm_again(const struct cuda_masking *masking, float x,
                                                        float mean, float factor, float bias) {
  return cuda_rounded(cuda_activate(&masking->activation, cuda_norm_of(x, mean, factor, bias)),
                      masking->is_rounded);
}

/* addend: 0 where there is none. The result is as it is when it is read again. */
static __device__ __forceinline__ float cuda_mask(const struct cuda_masking *masking, float dy, float addend,
                                                  float y) {
  float sum = masking->addend.data ? dy + addend : dy;
  float masked = cuda_lets_through(&masking->activation, y) ? sum : 0.0f;
  return cuda_rounded(masked, masking->masked.data && masking->masked.type == CUDA_BF16);
}

#endif

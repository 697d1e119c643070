/* What batch norm, its activations and their gradients make of an element. It is in one place because values
   that are computed again must have the same bits. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_CUH
#define WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_CUH

#include <math.h>

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/rows/norm.h"

/* factor = inv_std scale */
static __device__ __forceinline__ float cuda_norm_of(float x, float mean, float factor, float bias) {
  return fmaf(x - mean, factor, bias);
}

static __device__ __forceinline__ float cuda_activate(const struct fused_activation *activation, float x) {
  if (activation->kind == FUSED_RELU)
    return x < 0.0f ? 0.0f : x;
  if (activation->kind == FUSED_CLIP) {
    x = x < activation->low ? activation->low : x;
    return x > activation->high ? activation->high : x;
  }
  return x;
}

static __device__ __forceinline__ bool cuda_lets_through(const struct fused_activation *activation, float y) {
  if (activation->kind == FUSED_RELU)
    return y > 0.0f;
  return activation->kind == FUSED_NONE || (y > activation->low && y < activation->high);
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

/* The same as bounds: the gradient passes where y > low and y < high; high: NaN where there is no bound. */
struct cuda_gate {
  float low, high;
};

static __device__ __forceinline__ float cuda_gated(const struct cuda_gate *gate, float dy, float y) {
  return y > gate->low && !(y >= gate->high) ? dy : 0.0f;
}

/* A bound of BF16 that is not negative, as one of the values that are rounded: half a unit further. */
static inline bool cuda_bound_rounded(float *bound, int direction) {
  union {
    float real;
    uint32_t bits;
  } as = {*bound};
  if (isnan(*bound))
    return true;
  if (as.bits >> 31 || as.bits & 0xffffu || (as.bits == 0 && direction < 0))
    return false;
  as.bits += (uint32_t)direction * (0x8000u - (as.bits >> 16 & 1u));
  *bound = as.real;
  return true;
}

/* The gate for y as it is read; where it is computed again, for the norm alone, without activation and
   rounding. False where there is none. */
static inline bool cuda_gate_of(const struct cuda_masking *masking, struct cuda_gate *gate) {
  const struct fused_activation *activation = &masking->activation;
  gate->low = activation->kind == FUSED_RELU   ? 0.0f
              : activation->kind == FUSED_CLIP ? activation->low
                                               : -INFINITY;
  gate->high = activation->kind == FUSED_CLIP ? activation->high : NAN;
  if (activation->kind == FUSED_NONE)
    return !masking->bias && !masking->y.data;
  return !masking->bias || !masking->is_rounded ||
         (cuda_bound_rounded(&gate->low, 1) && cuda_bound_rounded(&gate->high, -1));
}

#endif

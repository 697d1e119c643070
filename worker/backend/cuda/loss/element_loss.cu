/* Losses of elements. x and target are read once, 4 bytes an element of F32 and 2 of BF16 each, neighbours by
   neighbouring threads, and the gradient is written once. Sums are in f64, of elements by the same thread
   each time. */
#include "worker/backend/cuda/loss/element_loss.h"
#include "worker/backend/cuda/rows/rows.cuh"

static __device__ __forceinline__ float sign_of(float d) {
  return (float)((d > 0.0f) - (d < 0.0f));
}

/* log(1 + exp(-x)), for any x */
static __device__ __forceinline__ float softplus_of_minus(float x) {
  return log1pf(expf(-fabsf(x))) + fmaxf(-x, 0.0f);
}

/* p: parameter; w: weight. */
static __device__ float value_of(enum cuda_element_kind kind, float x, float t, float p, float w) {
  float d = fabsf(x - t);
  switch (kind) {
  case ELEMENT_MSE:
    return w * (x - t) * (x - t);
  case ELEMENT_L1:
    return w * d;
  case ELEMENT_SMOOTH_L1:
    return w * (d < p ? 0.5f * d * d / p : d - 0.5f * p);
  case ELEMENT_HUBER:
    return w * (d <= p ? 0.5f * d * d : p * (d - 0.5f * p));
  case ELEMENT_BCE_WITH_LOGITS:
    return (1.0f - t) * x + (1.0f + (w - 1.0f) * t) * softplus_of_minus(x);
  case ELEMENT_KL_DIV:
    return t > 0.0f ? w * t * (logf(t) - x) : 0.0f;
  case ELEMENT_KL_DIV_LOG:
    return w * expf(t) * (t - x);
  }
  return 0.0f;
}

static __device__ float slope_of(enum cuda_element_kind kind, float x, float t, float p, float w) {
  float d = x - t;
  switch (kind) {
  case ELEMENT_MSE:
    return w * 2.0f * d;
  case ELEMENT_L1:
    return w * sign_of(d);
  case ELEMENT_SMOOTH_L1:
    return w * (fabsf(d) < p ? d / p : sign_of(d));
  case ELEMENT_HUBER:
    return w * (fabsf(d) <= p ? d : p * sign_of(d));
  case ELEMENT_BCE_WITH_LOGITS:
    return (1.0f - t) - (1.0f + (w - 1.0f) * t) / (1.0f + expf(x));
  case ELEMENT_KL_DIV:
    return t > 0.0f ? -w * t : 0.0f;
  case ELEMENT_KL_DIV_LOG:
    return -w * expf(t);
  }
  return 0.0f;
}

static __device__ __forceinline__ float weight_at(const struct cuda_element_loss *l, int64_t i) {
  if (!l->weights)
    return 1.0f;
  i = cuda_divide(&l->by_inner, i);
  return l->weights[cuda_digit(&l->by_weights, &i)];
}

static __global__ void element_loss_kernel(struct cuda_element_loss l) {
  double sum = 0.0;
  for (int64_t i = CUDA_FIRST; i < l.elems; i += CUDA_STRIDE)
    sum += value_of(l.kind, cuda_load(&l.x, i), cuda_load(&l.target, i), l.parameter, weight_at(&l, i));
  sum = cuda_team_sum(sum, CUDA_THREADS);
  if (threadIdx.x < CLASS_SUMS)
    l.sums[blockIdx.x * CLASS_SUMS + threadIdx.x] = threadIdx.x == 0 ? sum : 0.0;
}

static __global__ void element_loss_grad_kernel(struct cuda_element_loss l) {
  float dsum = *l.dsum;
  for (int64_t i = CUDA_FIRST; i < l.elems; i += CUDA_STRIDE) {
    float slope =
        slope_of(l.kind, cuda_load(&l.x, i), cuda_load(&l.target, i), l.parameter, weight_at(&l, i));
    cuda_store(&l.gradient, i, dsum * slope);
  }
}

extern "C" void cuda_element_loss_launch(const struct cuda_element_loss *loss, cudaStream_t stream) {
  if (loss->gradient.data)
    CUDA_LAUNCH(element_loss_grad_kernel, cuda_blocks(loss->elems), CUDA_THREADS, stream, *loss);
  else
    CUDA_LAUNCH(element_loss_kernel, loss->blocks, CUDA_THREADS, stream, *loss);
}

/* Numbers from counters, as common/agree/random.h has them. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_RANDOM_CUH
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_RANDOM_CUH

#include "worker/backend/cuda/engine/tensor.h"

static __device__ inline uint64_t cuda_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static __device__ inline uint64_t cuda_bits(uint64_t key, uint64_t index) {
  return cuda_mix(key + (index + 1) * 0x9e3779b97f4a7c15u);
}

/* The key of a node's stream in this execution. */
static __device__ inline uint64_t cuda_random_key(const struct cuda_context *context, int node) {
  uint64_t key = cuda_bits(cuda_bits(cuda_bits(0, context->seed), context->step), context->microbatch);
  return cuda_bits(key, (uint64_t)node);
}

static __device__ inline float cuda_uniform(uint64_t key, int64_t index) {
  return (float)(cuda_bits(key, (uint64_t)index) >> 40) * 0x1p-24f;
}

#endif

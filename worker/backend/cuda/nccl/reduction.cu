/* Reductions of several arrays along the reduction tree. */
#include "worker/backend/cuda/nccl/reduction.h"

#include "worker/backend/cuda/engine/device.h"

/* NaN wins: a comparison with it is false. */
static __device__ float reduction_combine(enum cuda_reduction_kind kind, float a, float b) {
  switch (kind) {
  case CUDA_SUM:
    return cuda_sum_of(a, b);
  case CUDA_PRODUCT:
    return __fmul_rn(a, b);
  case CUDA_MAX:
    return a > b || a != a ? a : b;
  default:
    return a < b || a != a ? a : b;
  }
}

/* Complete subtrees wait on a stack, as the digits of a binary counter do; what is left is merged from the
   right. */
static __global__ void reduce_kernel(struct cuda_reduction r) {
  for (int64_t e = CUDA_FIRST; e < r.elems; e += CUDA_STRIDE) {
    float stack[CUDA_REDUCTION_DEPTH];
    int depth = 0;
    for (int i = 0; i < r.n_sources; i++) {
      float x = r.sources[i][e];
      for (int digits = i; digits & 1; digits >>= 1)
        x = reduction_combine(r.kind, stack[--depth], x);
      stack[depth++] = x;
    }
    for (; depth > 1; depth--)
      stack[depth - 2] = reduction_combine(r.kind, stack[depth - 2], stack[depth - 1]);
    r.out[e] = stack[0];
  }
}

void cuda_reduction_launch(const struct cuda_reduction *reduction, cudaStream_t stream) {
  CUDA_LAUNCH(reduce_kernel, cuda_blocks(reduction->elems), CUDA_THREADS, stream, *reduction);
}

/* Folds of rows of integers: each element is read once, neighbours by neighbouring threads. */
#include "worker/backend/cuda/rows/integer_fold.h"
#include "worker/backend/cuda/engine/integer.cuh"
#include "worker/backend/cuda/rows/rows.cuh"

/* What some elements have come to: of extremes the greatest or least and its index, -1 for no element yet. */
struct total {
  int64_t value, index;
};

static __device__ bool is_better(const struct cuda_integer_fold *f, struct total a, struct total b) {
  bool is_greatest = f->kind == FOLD_MAX || f->kind == FOLD_ARG_MAX;
  if (a.index < 0 || b.index < 0)
    return b.index < 0;
  if (a.value != b.value)
    return (a.value > b.value) == is_greatest;
  return (a.index > b.index) == f->is_last;
}

static __device__ struct total totals_joined(const struct cuda_integer_fold *f, struct total a,
                                             struct total b) {
  struct total sum = a;
  switch (f->kind) {
  case FOLD_SUM:
    sum.value = (int64_t)((uint64_t)a.value + (uint64_t)b.value);
    return sum;
  case FOLD_PRODUCT:
    sum.value = (int64_t)((uint64_t)a.value * (uint64_t)b.value);
    return sum;
  default:
    return is_better(f, b, a) ? b : a;
  }
}

/* What the team's totals come to, for its first thread. */
static __device__ struct total team_total(const struct cuda_integer_fold *f, struct total own) {
  __shared__ struct total parts[CUDA_THREADS / CUDA_WARP];
  if (f->lanes == 1)
    return own;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2) {
    struct total other;
    other.value = __shfl_xor_sync(0xffffffffu, own.value, offset);
    other.index = __shfl_xor_sync(0xffffffffu, own.index, offset);
    own = totals_joined(f, own, other);
  }
  if (f->lanes == CUDA_WARP)
    return own;
  __syncthreads(); /* parts of the call before are read */
  if (threadIdx.x % CUDA_WARP == 0)
    parts[threadIdx.x / CUDA_WARP] = own;
  __syncthreads();
  for (int w = 1; w < CUDA_THREADS / CUDA_WARP && threadIdx.x == 0; w++)
    own = totals_joined(f, own, parts[w]);
  return own;
}

static __global__ void integer_fold_kernel(struct cuda_integer_fold f) {
  bool is_index = f.kind == FOLD_ARG_MAX || f.kind == FOLD_ARG_MIN;
  for (int64_t r = CUDA_TEAM_FIRST(f.lanes); r < f.rows.rows; r += CUDA_TEAMS(f.lanes)) {
    int64_t base = cuda_rows_begin(&f.rows, r);
    struct total total = {f.kind == FOLD_PRODUCT, -1};
    for (int64_t k = CUDA_LANE(f.lanes); k < f.rows.n; k += f.lanes) {
      struct total element = {cuda_integer(&f.x, base + cuda_rows_offset(&f.rows, k)), k};
      total = totals_joined(&f, total, element);
    }
    total = team_total(&f, total);
    if (CUDA_LANE(f.lanes) == 0)
      cuda_put_integer(&f.out, r, is_index ? total.index : total.value / f.divisor);
  }
}

extern "C" void cuda_integer_fold_launch(const struct cuda_integer_fold *f, cudaStream_t stream) {
  CUDA_LAUNCH(integer_fold_kernel, cuda_team_blocks(f->rows.rows, f->lanes), CUDA_THREADS, stream, *f);
}

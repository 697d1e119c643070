/* TopK by selection: each of the k is the first, in the order asked for, of the elements behind the one
   before. A row is read k times, from the caches but for the first: 4 bytes an element of F32, 2 of BF16,
   neighbours by neighbouring threads. */
#include "worker/backend/cuda/rows.cuh"
#include "worker/backend/cuda/top_k.h"

struct candidate {
  float x;
  int64_t index; /* -1: none */
};

/* Whether a comes before b: NaN is the greatest; of equals the one that is first in the row. */
static __device__ __forceinline__ bool comes_before(struct candidate a, struct candidate b, bool is_least) {
  int order = isnan(a.x) || isnan(b.x) ? !!isnan(a.x) - !!isnan(b.x) : (a.x > b.x) - (a.x < b.x);
  if (a.index < 0 || b.index < 0)
    return b.index < 0;
  return order == 0 ? a.index < b.index : (order < 0) == is_least;
}

static __device__ __forceinline__ struct candidate first_of(struct candidate a, struct candidate b,
                                                            bool is_least) {
  return comes_before(b, a, is_least) ? b : a;
}

/* The first of the team's, to each of its threads. */
static __device__ struct candidate team_first(struct candidate own, int lanes, bool is_least) {
  __shared__ struct candidate parts[CUDA_THREADS / CUDA_WARP];
  if (lanes == 1)
    return own;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2) {
    struct candidate other;
    other.x = __shfl_xor_sync(0xffffffffu, own.x, offset);
    other.index = __shfl_xor_sync(0xffffffffu, own.index, offset);
    own = first_of(own, other, is_least);
  }
  if (lanes == CUDA_WARP)
    return own;
  __syncthreads(); /* parts of the call before are read */
  if (threadIdx.x % CUDA_WARP == 0)
    parts[threadIdx.x / CUDA_WARP] = own;
  __syncthreads();
  own = parts[0];
  for (int w = 1; w < CUDA_THREADS / CUDA_WARP; w++)
    own = first_of(own, parts[w], is_least);
  return own;
}

static __global__ void top_k_kernel(struct cuda_top_k t) {
  for (int64_t r = CUDA_TEAM_FIRST(t.lanes); r < t.rows.rows; r += CUDA_TEAMS(t.lanes)) {
    int64_t base = cuda_rows_begin(&t.rows, r), outer = cuda_divide(&t.rows.by_k1, r);
    int64_t to = outer * t.k * t.rows.k1 + (r - outer * t.rows.k1);
    struct candidate last = {0.0f, -1};
    for (int64_t j = 0; j < t.k; j++, to += t.rows.k1) {
      struct candidate best = {0.0f, -1};
      for (int64_t i = CUDA_LANE(t.lanes); i < t.rows.n; i += t.lanes) {
        struct candidate own = {cuda_load(&t.x, base + cuda_rows_offset(&t.rows, i)), i};
        if (last.index < 0 || comes_before(last, own, t.is_least))
          best = first_of(best, own, t.is_least);
      }
      last = team_first(best, t.lanes, t.is_least);
      if (CUDA_LANE(t.lanes) == 0 && t.y.data)
        cuda_store(&t.y, to, last.x);
      if (CUDA_LANE(t.lanes) == 0 && t.indices)
        t.indices[to] = last.index;
    }
  }
}

extern "C" void cuda_top_k_launch(const struct cuda_top_k *t, cudaStream_t stream) {
  CUDA_LAUNCH(top_k_kernel, cuda_team_blocks(t->rows.rows, t->lanes), CUDA_THREADS, stream, *t);
}

/* Sums of ranges of f32. A block of threads has one tile of one range; each thread loads all of its elements
   before it adds, and a warp reads and writes 32 neighbours, wherever the range begins. */
#include "worker/backend/cuda/engine/sums.h"

#include "worker/backend/cuda/engine/device.h"

enum { BATCH = CUDA_SUM_TILE / CUDA_THREADS };

static_assert(sizeof(struct cuda_sums) + sizeof(int64_t) <= 4096, "what a kernel's parameters have room for");

static __device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

/* Returns whether an element that the thread wrote or looked at is not finite. */
static __device__ bool sum_tile(const struct cuda_sum *sum, int64_t tile) {
  int64_t first = tile * CUDA_SUM_TILE + threadIdx.x;
  float out[BATCH], in[BATCH];
  bool is_bad = false;
  for (int i = 0; i < BATCH; i++) {
    int64_t at = min(first + (int64_t)i * CUDA_THREADS, sum->elems - 1);
    out[i] = sum->out[at];
    in[i] = sum->in ? sum->in[at] : 0.0f;
  }
  for (int i = 0; i < BATCH; i++) {
    int64_t at = first + (int64_t)i * CUDA_THREADS;
    float total = sum->in ? cuda_sum_of(out[i], in[i]) : out[i];
    if (at >= sum->elems)
      break;
    if (sum->in)
      sum->out[at] = total;
    is_bad |= !is_finite(total);
  }
  return is_bad;
}

static __global__ void sums_kernel(struct cuda_sums sums, int64_t tiles) {
  int r = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    while (tile >= sums.ranges[r].end)
      r++;
    if (sum_tile(&sums.ranges[r], tile - (r > 0 ? sums.ranges[r - 1].end : 0)))
      *sums.ranges[r].not_finite = 1; /* whoever else writes it writes the same */
  }
}

void cuda_sums_launch(struct cuda_sums *sums, cudaStream_t stream) {
  int64_t tiles = 0;
  for (int r = 0; r < sums->n; r++) {
    tiles += (sums->ranges[r].elems + CUDA_SUM_TILE - 1) / CUDA_SUM_TILE;
    sums->ranges[r].end = tiles;
  }
  if (tiles > 0)
    CUDA_LAUNCH(sums_kernel, cuda_blocks(tiles * CUDA_THREADS), CUDA_THREADS, stream, *sums, tiles);
}

/* Rows on the device: where elements lie, and the team of threads that shares a row. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_ROWS_CUH
#define WEIR_WORKER_BACKEND_CUDA_ROWS_ROWS_CUH

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/rows/rows.h"

static_assert((int)ROWS_WARP == (int)CUDA_WARP && (int)ROWS_BLOCK == (int)CUDA_THREADS, "one size of blocks");

/* Where element k of row r lies. */
static __device__ inline int64_t cuda_rows_begin(const struct cuda_rows *rows, int64_t r) {
  int64_t i = cuda_divide(&rows->by_k1, r);
  return i * rows->r1 * rows->k1 + (r - i * rows->k1);
}

static __device__ inline int64_t cuda_rows_offset(const struct cuda_rows *rows, int64_t k) {
  if (rows->r0 == 1)
    return k * rows->k1;
  int64_t q = cuda_divide(&rows->by_r1, k);
  return (q * rows->k0 * rows->r1 + (k - q * rows->r1)) * rows->k1;
}

/* The row that the element at `at` belongs to. */
static __device__ inline int64_t cuda_rows_row(const struct cuda_rows *rows, int64_t at) {
  int64_t j = cuda_digit(&rows->by_k1, &at);
  at = cuda_divide(&rows->by_r1, at);
  return cuda_digit(&rows->by_k0, &at) * rows->k1 + j;
}

/* A thread loads a few elements, as they lie, before it uses the first: memory is busy only while several
   loads of each thread are under way. */
enum { CUDA_BATCH = 4 };

static __device__ __forceinline__ uint32_t cuda_load_bits(const struct cuda_tensor *t, int64_t i) {
  return t->type == CUDA_F32 ? ((const uint32_t *)t->data)[i] : ((const uint16_t *)t->data)[i];
}

static __device__ __forceinline__ float cuda_value_of(const struct cuda_tensor *t, uint32_t bits) {
  return __uint_as_float(t->type == CUDA_F32 ? bits : bits << 16);
}

/* The threads that share a row are 1, a warp or the block (`lanes`). Every one of a team gets the result,
   which is the same each time; all threads of the block must call these. */
static __device__ inline double cuda_team_sum(double x, int lanes) {
  __shared__ double parts[CUDA_THREADS / CUDA_WARP];
  if (lanes == 1)
    return x;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  if (lanes == CUDA_WARP)
    return x;
  __syncthreads(); /* parts of the call before are read */
  if (threadIdx.x % CUDA_WARP == 0)
    parts[threadIdx.x / CUDA_WARP] = x;
  __syncthreads();
  x = 0.0;
  for (int w = 0; w < CUDA_THREADS / CUDA_WARP; w++)
    x += parts[w];
  return x;
}

static __device__ inline float cuda_team_max(float x, int lanes) {
  __shared__ float parts[CUDA_THREADS / CUDA_WARP];
  if (lanes == 1)
    return x;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  if (lanes == CUDA_WARP)
    return x;
  __syncthreads();
  if (threadIdx.x % CUDA_WARP == 0)
    parts[threadIdx.x / CUDA_WARP] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < CUDA_THREADS / CUDA_WARP; w++)
    x = fmaxf(x, parts[w]);
  return x;
}

/* for (r = CUDA_TEAM_FIRST(lanes); r < rows; r += CUDA_TEAMS(lanes)), in which this thread is lane
   CUDA_LANE(lanes) */
#define CUDA_TEAM_FIRST(lanes)                                                                               \
  ((int64_t)blockIdx.x * (CUDA_THREADS / (lanes)) + (int64_t)(threadIdx.x / (lanes)))
#define CUDA_TEAMS(lanes) ((int64_t)gridDim.x * (CUDA_THREADS / (lanes)))
#define CUDA_LANE(lanes) ((int64_t)(threadIdx.x % (lanes)))

/* Blocks for that many teams. */
static inline int64_t cuda_team_blocks(int64_t teams, int lanes) {
  return cuda_blocks(teams * lanes);
}

#endif

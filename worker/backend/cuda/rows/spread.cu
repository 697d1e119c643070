/* Elements from what their rows have. A thread takes CUDA_BATCH elements a block apart, and a warp reads and
   writes 32 neighbours: of F32 4 bytes an element for each of x, dy and out, of BF16 2. What rows have is
   read from the caches. */
#include "worker/backend/cuda/rows/rows.cuh"
#include "worker/backend/cuda/rows/spread.h"

static __device__ __forceinline__ float row_of(const struct cuda_spread *s, int i, int64_t r) {
  return cuda_load(&s->row[i], r);
}

/* x == y, where y may have been rounded to BF16 and x not. */
static __device__ __forceinline__ bool is_same(float x, float y, enum cuda_type type) {
  return (type == CUDA_BF16 ? cuda_from_bf16(cuda_to_bf16(x)) : x) == y;
}

/* The derivative of a norm y of that order with respect to its element x; 0 where the norm is. */
static __device__ float lp_slope(float x, float y, double p) {
  if (x == 0.0f || y == 0.0f)
    return 0.0f;
  if (p == 1.0)
    return x < 0.0f ? -1.0f : 1.0f;
  return p == 2.0 ? x / y : copysignf((float)pow((double)(fabsf(x) / y), p - 1.0), x);
}

/* The product of a row's other elements than x; `product` is of those that are not 0. */
static __device__ float product_without(float product, float zeros, float x) {
  if (x == 0.0f)
    return zeros == 1.0f ? product : 0.0f;
  return zeros > 0.0f ? 0.0f : product / x;
}

static __device__ float deviation_grad(const struct cuda_spread *s, int64_t r, float x, float dy) {
  float n = (float)s->rows.n, deviation = sqrtf(row_of(s, 1, r)) + (float)s->epsilon;
  float centred = (x - row_of(s, 0, r)) / deviation;
  return (dy - row_of(s, 3, r) / n - centred * (row_of(s, 2, r) / deviation / n)) / deviation;
}

static __device__ float spread_element(const struct cuda_spread *s, int64_t r, float x, float dy) {
  switch (s->kind) {
  case SPREAD_REPEAT:
    return row_of(s, 0, r) * (float)s->scale;
  case SPREAD_DEVIATION:
    return (x - row_of(s, 0, r)) / (sqrtf(row_of(s, 1, r)) + (float)s->epsilon);
  case SPREAD_DEVIATION_GRAD:
    return deviation_grad(s, r, x, dy);
  case SPREAD_EXTREME:
    return is_same(x, row_of(s, 1, r), s->row[1].type) ? row_of(s, 0, r) / row_of(s, 2, r) : 0.0f;
  case SPREAD_LP:
    return row_of(s, 0, r) * lp_slope(x, row_of(s, 1, r), s->power);
  case SPREAD_PRODUCT:
    return row_of(s, 0, r) * product_without(row_of(s, 1, r), row_of(s, 2, r), x);
  }
  return 0.0f;
}

static __global__ void spread_kernel(struct cuda_spread s) {
  int64_t n = s.rows.rows * s.rows.n, block = (int64_t)CUDA_BATCH * CUDA_THREADS;
  for (int64_t first = blockIdx.x * block + threadIdx.x; first < n; first += gridDim.x * block) {
    uint32_t x[CUDA_BATCH] = {0}, dy[CUDA_BATCH] = {0};
#pragma unroll /* else x and dy are indexed as they run, and lie in memory */
    for (int i = 0; i < CUDA_BATCH; i++) {
      int64_t at = min(first + (int64_t)i * CUDA_THREADS, n - 1);
      if (s.x.data)
        x[i] = cuda_load_bits(&s.x, at);
      if (s.dy.data)
        dy[i] = cuda_load_bits(&s.dy, at);
    }
#pragma unroll
    for (int i = 0; i < CUDA_BATCH; i++) {
      int64_t at = first + (int64_t)i * CUDA_THREADS;
      if (at < n)
        cuda_store(&s.out, at,
                   spread_element(&s, cuda_rows_row(&s.rows, at), cuda_value_of(&s.x, x[i]),
                                  cuda_value_of(&s.dy, dy[i])));
    }
  }
}

extern "C" void cuda_spread_launch(const struct cuda_spread *spread, cudaStream_t stream) {
  int64_t n = spread->rows.rows * spread->rows.n;
  CUDA_LAUNCH(spread_kernel, cuda_blocks((n + CUDA_BATCH - 1) / CUDA_BATCH), CUDA_THREADS, stream, *spread);
}

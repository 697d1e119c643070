/* Scatters. The rows that go to one place must be added in an order that does not change, so atomics on reals
   are out. The rows' numbers are sorted by place instead: next to nothing beside the rows themselves. Then
   every place's rows lie side by side in the order of the indices; a block sums those of one place, 8 warps
   taking every 8th row each, in lines of 128 columns, and the 8 partial sums in order. Rows are read once,
   places written once. The work of a place depends on how many rows it gets, but not on how large the data
   is. */
#include "worker/backend/cuda/moves/scatter.h"

#include <math.h>

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/engine/integer.cuh"

static __device__ float identity_of(enum cuda_scatter how) {
  return how == SCATTER_MUL ? 1.0f : how == SCATTER_MIN ? INFINITY : how == SCATTER_MAX ? -INFINITY : 0.0f;
}

static __device__ float values_joined(enum cuda_scatter how, float old, float x) {
  switch (how) {
  case SCATTER_MUL:
    return old * x;
  case SCATTER_MIN:
    return x < old || x != x ? x : old;
  case SCATTER_MAX:
    return x > old || x != x ? x : old;
  case SCATTER_LAST:
    return x;
  default:
    return old + x;
  }
}

static __device__ void value_put(enum cuda_scatter how, const struct cuda_tensor *to, int64_t at, float x) {
  cuda_store(to, at, how == SCATTER_FIRST ? x : values_joined(how, cuda_load(to, at), x));
}

/* Whether sorted row s is the first of its place. */
static __device__ bool is_first(const uint32_t *keys, int64_t s) {
  return s == 0 || keys[s] != keys[s - 1];
}

/* Short rows: a thread for each column of each place. */
static __global__ void scatter_elements_kernel(struct cuda_scattering scatter, struct cuda_divisor run) {
  for (int64_t i = CUDA_FIRST; i < scatter.rows * run.by; i += CUDA_STRIDE) {
    int64_t s = i, column = cuda_digit(&run, &s);
    float x = identity_of(scatter.how);
    if (!is_first(scatter.keys, s))
      continue;
    uint32_t key = scatter.keys[s];
    for (; s < scatter.rows && scatter.keys[s] == key; s++)
      x = values_joined(scatter.how, x, cuda_load(&scatter.updates, scatter.order[s] * run.by + column));
    value_put(scatter.how, &scatter.to, key * run.by + column, x);
  }
}

/* Sums and products wrap. */
static __device__ int64_t joined_integers(enum cuda_scatter how, int64_t old, int64_t x) {
  switch (how) {
  case SCATTER_MUL:
    return (int64_t)((uint64_t)old * (uint64_t)x);
  case SCATTER_MIN:
    return min(x, old);
  case SCATTER_MAX:
    return max(x, old);
  case SCATTER_LAST:
    return x;
  default:
    return (int64_t)((uint64_t)old + (uint64_t)x);
  }
}

static __global__ void scatter_integers_kernel(struct cuda_scattering scatter, struct cuda_divisor run) {
  for (int64_t i = CUDA_FIRST; i < scatter.rows * run.by; i += CUDA_STRIDE) {
    int64_t s = i, column = cuda_digit(&run, &s);
    if (!is_first(scatter.keys, s))
      continue;
    uint32_t key = scatter.keys[s];
    int64_t at = key * run.by + column, x = cuda_integer(&scatter.to, at);
    for (; s < scatter.rows && scatter.keys[s] == key; s++)
      x = joined_integers(scatter.how, x, cuda_integer(&scatter.updates, scatter.order[s] * run.by + column));
    cuda_put_integer(&scatter.to, at, x);
  }
}

enum { ROW_WARPS = CUDA_THREADS / CUDA_WARP, LANE_COLUMNS = 4, BLOCK_COLUMNS = CUDA_WARP * LANE_COLUMNS };

/* Long rows: a block for 128 columns of each place. Its warps take every 8th row. */
static __global__ void scatter_rows_kernel(struct cuda_scattering scatter, struct cuda_divisor chunks) {
  __shared__ float parts[ROW_WARPS][BLOCK_COLUMNS];
  int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
  for (int64_t t = blockIdx.x; t < scatter.rows * chunks.by; t += gridDim.x) {
    int64_t s = t, column = cuda_digit(&chunks, &s) * BLOCK_COLUMNS;
    if (!is_first(scatter.keys, s))
      continue;
    uint32_t key = scatter.keys[s];
    float x[LANE_COLUMNS];
    for (int k = 0; k < LANE_COLUMNS; k++)
      x[k] = identity_of(scatter.how);
    for (int64_t r = s + warp; r < scatter.rows && scatter.keys[r] == key; r += ROW_WARPS) {
      int64_t row = scatter.order[r] * scatter.run;
      for (int k = 0; k < LANE_COLUMNS; k++) {
        int64_t c = column + lane + k * CUDA_WARP;
        if (c < scatter.run)
          x[k] = values_joined(scatter.how, x[k], cuda_load(&scatter.updates, row + c));
      }
    }
    __syncthreads(); /* the parts before are read */
    for (int k = 0; k < LANE_COLUMNS; k++)
      parts[warp][lane + k * CUDA_WARP] = x[k];
    __syncthreads();
    if (threadIdx.x < BLOCK_COLUMNS && column + threadIdx.x < scatter.run) {
      float sum = parts[0][threadIdx.x];
      for (int w = 1; w < ROW_WARPS; w++)
        sum = values_joined(scatter.how, sum, parts[w][threadIdx.x]);
      value_put(scatter.how, &scatter.to, key * scatter.run + column + threadIdx.x, sum);
    }
  }
}

void cuda_scatter_launch(const struct cuda_scattering *scattering, cudaStream_t stream) {
  int64_t rows = scattering->rows, run = scattering->run, chunks = (run + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  enum cuda_type type = scattering->to.type;
  if (type != CUDA_F32 && type != CUDA_BF16)
    CUDA_LAUNCH(scatter_integers_kernel, cuda_blocks(rows * run), CUDA_THREADS, stream, *scattering,
                cuda_divisor_of(run));
  else if (run < CUDA_WARP || scattering->how == SCATTER_LAST)
    CUDA_LAUNCH(scatter_elements_kernel, cuda_blocks(rows * run), CUDA_THREADS, stream, *scattering,
                cuda_divisor_of(run));
  else
    CUDA_LAUNCH(scatter_rows_kernel, rows * chunks < 1 << 20 ? rows * chunks : 1 << 20, CUDA_THREADS, stream,
                *scattering, cuda_divisor_of(chunks));
}

/* What is before a row times what is behind it, so that a factor of 0 divides nothing. Returns what is left
   for the data. */
static __device__ float grad_of_product(const struct cuda_scatter_grad *g, int64_t begin, int64_t end,
                                        int64_t column, int64_t place) {
  float product = cuda_load(&g->data, place);
  for (int64_t s = begin; s < end; s++) {
    int64_t at = g->order[s] * g->run + column;
    cuda_store(&g->d_updates, at, product);
    product *= cuda_load(&g->updates, at);
  }
  product = cuda_load(&g->dy, place);
  for (int64_t s = end - 1; s >= begin; s--) {
    int64_t at = g->order[s] * g->run + column;
    cuda_store(&g->d_updates, at, cuda_load(&g->d_updates, at) * product);
    product *= cuda_load(&g->updates, at);
  }
  return product;
}

/* All that are the extreme have equal shares. */
static __device__ float grad_of_extreme(const struct cuda_scatter_grad *g, int64_t begin, int64_t end,
                                        int64_t column, int64_t place) {
  float y = cuda_load(&g->y, place), share;
  bool has_data = cuda_load(&g->data, place) == y;
  int count = has_data;
  for (int64_t s = begin; s < end; s++)
    count += cuda_load(&g->updates, g->order[s] * g->run + column) == y;
  share = cuda_load(&g->dy, place) / (float)count;
  for (int64_t s = begin; s < end; s++) {
    int64_t at = g->order[s] * g->run + column;
    cuda_store(&g->d_updates, at, cuda_load(&g->updates, at) == y ? share : 0.0f);
  }
  return has_data ? share : 0.0f;
}

/* The last one has all. */
static __device__ float grad_of_last(const struct cuda_scatter_grad *g, int64_t begin, int64_t end,
                                     int64_t column, int64_t place) {
  for (int64_t s = begin; s < end; s++)
    cuda_store(&g->d_updates, g->order[s] * g->run + column, s + 1 == end ? cuda_load(&g->dy, place) : 0.0f);
  return 0.0f;
}

/* Of the places that no row goes to. */
static __global__ void rest_grad_kernel(struct cuda_scatter_grad g) {
  bool is_extreme = g.how == SCATTER_MIN || g.how == SCATTER_MAX;
  for (int64_t i = CUDA_FIRST; i < g.d_data.elems; i += CUDA_STRIDE) {
    bool is_passed = !is_extreme || cuda_load(&g.data, i) == cuda_load(&g.y, i);
    cuda_store(&g.d_data, i, is_passed ? cuda_load(&g.dy, i) : 0.0f);
  }
}

/* A thread for each column of each place. */
static __global__ void scatter_grad_kernel(struct cuda_scatter_grad g, struct cuda_divisor run) {
  for (int64_t i = CUDA_FIRST; i < g.rows * run.by; i += CUDA_STRIDE) {
    int64_t s = i, column = cuda_digit(&run, &s), end = s + 1, place;
    float left;
    if (!is_first(g.keys, s))
      continue;
    while (end < g.rows && g.keys[end] == g.keys[s])
      end++;
    place = g.keys[s] * run.by + column;
    left = g.how == SCATTER_MUL    ? grad_of_product(&g, s, end, column, place)
           : g.how == SCATTER_LAST ? grad_of_last(&g, s, end, column, place)
                                   : grad_of_extreme(&g, s, end, column, place);
    cuda_store(&g.d_data, place, left);
  }
}

void cuda_scatter_grad_launch(const struct cuda_scatter_grad *grad, cudaStream_t stream) {
  CUDA_LAUNCH(rest_grad_kernel, cuda_blocks(grad->d_data.elems), CUDA_THREADS, stream, *grad);
  CUDA_LAUNCH(scatter_grad_kernel, cuda_blocks(grad->rows * grad->run), CUDA_THREADS, stream, *grad,
              cuda_divisor_of(grad->run));
}

/* Gathering and scattering rows by index.

   Gather reads each row's index and moves each of its bytes once, in pieces of up to 16 bytes, neighbours by
   neighbours.

   Scatter must add the rows that go to one place in an order that does not change, so atomics on reals are
   out. The rows' numbers are sorted by place instead, by a stable radix sort of 8 bits a pass: 16 bytes of
   traffic per index and pass, next to nothing beside the rows themselves. Then every place's rows lie side by
   side in the order of the indices; a block sums those of one place, 8 warps taking every 8th row each, in
   lines of 128 columns, and the 8 partial sums in order. Rows are read once, places written once. The work of
   a place depends on how many rows it gets, but not on how large the data is. */
#include "worker/backend/cuda/places.h"

#include <math.h>

#include "worker/backend/cuda/device.h"

/* Places. */

static __device__ int64_t index_at(const struct cuda_tensor *indices, int64_t i) {
  return indices->type == CUDA_I32 ? ((const int32_t *)indices->data)[i]
                                   : ((const int64_t *)indices->data)[i];
}

/* The row of the data that row r belongs to; 0 after a fault. */
static __device__ int64_t place_of(const struct cuda_places *places, int64_t r, struct cuda_fault *fault) {
  int64_t left = r, place = 0, first = r - cuda_divide(&places->period, r) * places->period.by;
  for (int d = places->rank - 1; d >= 0; d--)
    place += cuda_digit(&places->dim[d], &left) * places->stride[d];
  for (int k = 0; k < places->tuple; k++) {
    int64_t at = first * places->tuple + k, index = index_at(&places->indices, at);
    if (index < -places->size[k] || index >= places->size[k]) {
      cuda_fault_set(fault, places->node, index, at);
      return 0;
    }
    place += (index < 0 ? index + places->size[k] : index) * places->index_stride[k];
  }
  return place;
}

/* Gather. */

#define GATHER_KERNEL(type)                                                                                  \
  static __global__ void gather_##type(struct cuda_places places, struct cuda_divisor run, const type *data, \
                                       type *out, struct cuda_fault *fault) {                                \
    for (int64_t i = CUDA_FIRST; i < places.rows * run.by; i += CUDA_STRIDE) {                               \
      int64_t r = i, j = cuda_digit(&run, &r);                                                               \
      out[i] = data[place_of(&places, r, fault) * run.by + j];                                               \
    }                                                                                                        \
  }

GATHER_KERNEL(uint8_t)
GATHER_KERNEL(uint16_t)
GATHER_KERNEL(uint32_t)
GATHER_KERNEL(uint64_t)
GATHER_KERNEL(uint4)

void cuda_gather_launch(const struct cuda_places *places, int64_t run, int element, const void *data,
                        void *out, struct cuda_fault *fault, cudaStream_t stream) {
#define GATHER(type)                                                                                         \
  CUDA_LAUNCH(gather_##type, cuda_blocks(places->rows *run), CUDA_THREADS, stream, *places,                  \
              cuda_divisor_of(run), (const type *)data, (type *)out, fault)
  switch (element) {
  case 1:
    GATHER(uint8_t);
    break;
  case 2:
    GATHER(uint16_t);
    break;
  case 4:
    GATHER(uint32_t);
    break;
  case 8:
    GATHER(uint64_t);
    break;
  default:
    GATHER(uint4);
  }
}

/* Sort. */

static __global__ void keys_kernel(struct cuda_places places, uint32_t *keys, uint32_t *rows,
                                   struct cuda_fault *fault) {
  for (int64_t r = CUDA_FIRST; r < places.rows; r += CUDA_STRIDE) {
    keys[r] = (uint32_t)place_of(&places, r, fault);
    rows[r] = (uint32_t)r;
  }
}

/* How often each digit occurs in a block: counts[digit][block]. */
static __global__ void count_kernel(const uint32_t *keys, int64_t n, int shift, uint32_t *counts) {
  __shared__ uint32_t found[SORT_DIGITS];
  int64_t i = CUDA_FIRST;
  found[threadIdx.x] = 0;
  __syncthreads();
  if (i < n)
    atomicAdd(&found[keys[i] >> shift & (SORT_DIGITS - 1)], 1u);
  __syncthreads();
  counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

enum { SUM_THREADS = 1024 };

/* Each count becomes the sum of those before it. One block; its threads take neighbouring parts. */
static __global__ void __launch_bounds__(SUM_THREADS) sum_counts_kernel(uint32_t *counts, int64_t n) {
  __shared__ uint32_t sums[SUM_THREADS];
  int64_t part = (n + blockDim.x - 1) / blockDim.x, begin = part * threadIdx.x;
  int64_t end = begin + part < n ? begin + part : n;
  uint32_t sum = 0;
  for (int64_t i = begin; i < end; i++)
    sum += counts[i];
  sums[threadIdx.x] = sum;
  for (int reach = 1; reach < (int)blockDim.x; reach *= 2) {
    __syncthreads();
    uint32_t before = (int)threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  sum = sums[threadIdx.x] - sum;
  for (int64_t i = begin; i < end; i++) {
    uint32_t count = counts[i];
    counts[i] = sum;
    sum += count;
  }
}

/* Each row goes behind those of lesser digits, and of its digit behind those that were before it. */
static __global__ void place_kernel(const uint32_t *keys, const uint32_t *rows, int64_t n, int shift,
                                    const uint32_t *counts, uint32_t *keys_out, uint32_t *rows_out) {
  __shared__ uint32_t digits[SORT_BLOCK];
  int64_t i = CUDA_FIRST;
  uint32_t digit = i < n ? keys[i] >> shift & (SORT_DIGITS - 1) : (uint32_t)SORT_DIGITS, before = 0;
  digits[threadIdx.x] = digit;
  __syncthreads();
  if (i >= n)
    return;
  for (unsigned t = 0; t < threadIdx.x; t++)
    before += digits[t] == digit;
  before += counts[(int64_t)digit * gridDim.x + blockIdx.x];
  keys_out[before] = keys[i];
  rows_out[before] = rows[i];
}

void cuda_sort_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                      struct cuda_fault *fault, cudaStream_t stream) {
  int64_t n = places->rows, blocks = cuda_sort_blocks(n);
  int passes = 1, from;
  while (passes < 4 && ((places->data_rows - 1) >> (passes * SORT_DIGIT_BITS)) != 0)
    passes++;
  from = passes % 2; /* so that the last pass ends in the first arrays */
  CUDA_LAUNCH(keys_kernel, cuda_blocks(n), CUDA_THREADS, stream, *places, sorting->keys[from],
              sorting->rows[from], fault);
  for (int pass = 0; pass < passes; pass++, from = !from) {
    int shift = pass * SORT_DIGIT_BITS;
    CUDA_LAUNCH(count_kernel, blocks, SORT_BLOCK, stream, (const uint32_t *)sorting->keys[from], n, shift,
                sorting->counts);
    CUDA_LAUNCH(sum_counts_kernel, 1, SUM_THREADS, stream, sorting->counts, SORT_DIGITS * blocks);
    CUDA_LAUNCH(place_kernel, blocks, SORT_BLOCK, stream, (const uint32_t *)sorting->keys[from],
                (const uint32_t *)sorting->rows[from], n, shift, (const uint32_t *)sorting->counts,
                sorting->keys[!from], sorting->rows[!from]);
  }
}

/* Scatter. */

static __device__ float identity_of(enum cuda_scatter how) {
  return how == SCATTER_MUL ? 1.0f : how == SCATTER_MIN ? INFINITY : how == SCATTER_MAX ? -INFINITY : 0.0f;
}

static __device__ float joined(enum cuda_scatter how, float old, float x) {
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

static __device__ void put(enum cuda_scatter how, const struct cuda_tensor *to, int64_t at, float x) {
  cuda_store(to, at, how == SCATTER_FIRST ? x : joined(how, cuda_load(to, at), x));
}

struct scatter {
  enum cuda_scatter how;
  int64_t rows, run;
  const uint32_t *keys, *order;
  struct cuda_tensor updates, to;
};

/* Whether sorted row s is the first of its place. */
static __device__ bool is_first(const struct scatter *scatter, int64_t s) {
  return s == 0 || scatter->keys[s] != scatter->keys[s - 1];
}

/* Short rows: a thread for each column of each place. */
static __global__ void scatter_elements_kernel(struct scatter scatter, struct cuda_divisor run) {
  for (int64_t i = CUDA_FIRST; i < scatter.rows * run.by; i += CUDA_STRIDE) {
    int64_t s = i, column = cuda_digit(&run, &s);
    float x = identity_of(scatter.how);
    if (!is_first(&scatter, s))
      continue;
    uint32_t key = scatter.keys[s];
    for (; s < scatter.rows && scatter.keys[s] == key; s++)
      x = joined(scatter.how, x, cuda_load(&scatter.updates, scatter.order[s] * run.by + column));
    put(scatter.how, &scatter.to, key * run.by + column, x);
  }
}

enum { ROW_WARPS = CUDA_THREADS / CUDA_WARP, LANE_COLUMNS = 4, BLOCK_COLUMNS = CUDA_WARP * LANE_COLUMNS };

/* Long rows: a block for 128 columns of each place. Its warps take every 8th row. */
static __global__ void scatter_rows_kernel(struct scatter scatter, struct cuda_divisor chunks) {
  __shared__ float parts[ROW_WARPS][BLOCK_COLUMNS];
  int warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
  for (int64_t t = blockIdx.x; t < scatter.rows * chunks.by; t += gridDim.x) {
    int64_t s = t, column = cuda_digit(&chunks, &s) * BLOCK_COLUMNS;
    if (!is_first(&scatter, s))
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
          x[k] = joined(scatter.how, x[k], cuda_load(&scatter.updates, row + c));
      }
    }
    __syncthreads(); /* the parts before are read */
    for (int k = 0; k < LANE_COLUMNS; k++)
      parts[warp][lane + k * CUDA_WARP] = x[k];
    __syncthreads();
    if (threadIdx.x < BLOCK_COLUMNS && column + threadIdx.x < scatter.run) {
      float sum = parts[0][threadIdx.x];
      for (int w = 1; w < ROW_WARPS; w++)
        sum = joined(scatter.how, sum, parts[w][threadIdx.x]);
      put(scatter.how, &scatter.to, key * scatter.run + column + threadIdx.x, sum);
    }
  }
}

void cuda_scatter_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                         enum cuda_scatter how, const struct cuda_tensor *updates,
                         const struct cuda_tensor *to, cudaStream_t stream) {
  int64_t run = places->run, chunks = (run + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  struct scatter scatter = {how, places->rows, run, sorting->keys[0], sorting->rows[0], *updates, *to};
  if (run < CUDA_WARP || how == SCATTER_LAST)
    CUDA_LAUNCH(scatter_elements_kernel, cuda_blocks(places->rows * run), CUDA_THREADS, stream, scatter,
                cuda_divisor_of(run));
  else
    CUDA_LAUNCH(scatter_rows_kernel, places->rows * chunks < 1 << 20 ? places->rows * chunks : 1 << 20,
                CUDA_THREADS, stream, scatter, cuda_divisor_of(chunks));
}

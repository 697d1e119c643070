/* A stable radix sort of 8 bits a pass: 16 bytes of traffic per row and pass. */
#include "worker/backend/cuda/engine/sort.h"

#include "worker/backend/cuda/engine/device.h"

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

void cuda_sort_launch(const struct cuda_sorting *sorting, int64_t n, uint32_t greatest, cudaStream_t stream) {
  int from = cuda_sort_begin(greatest);
  int64_t blocks = cuda_sort_blocks(n);
  for (int pass = 0; pass < cuda_sort_passes(greatest); pass++, from = !from) {
    int shift = pass * SORT_DIGIT_BITS;
    CUDA_LAUNCH(count_kernel, blocks, SORT_BLOCK, stream, (const uint32_t *)sorting->keys[from], n, shift,
                sorting->counts);
    CUDA_LAUNCH(sum_counts_kernel, 1, SUM_THREADS, stream, sorting->counts, SORT_DIGITS * blocks);
    CUDA_LAUNCH(place_kernel, blocks, SORT_BLOCK, stream, (const uint32_t *)sorting->keys[from],
                (const uint32_t *)sorting->rows[from], n, shift, (const uint32_t *)sorting->counts,
                sorting->keys[!from], sorting->rows[!from]);
  }
}

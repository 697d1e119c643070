#include "tests/simulation/device_test.cuh"

/* What somebody copies who comes when a fault is being set. */
static const struct cuda_fault *looked_at;
static struct cuda_fault *seen;
#define __threadfence() (*seen = *looked_at)

#include "worker/backend/cuda/engine/device.h"

static __global__ void add(float *out, const float *in, float x, int n) {
  for (int64_t i = CUDA_FIRST; i < n; i += CUDA_STRIDE)
    out[i] = in[i] + x;
}

static __global__ void sum(float *out, const float *in, int width) {
  float x = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    x += in[(int64_t)blockIdx.x * width + i];
  x = cuda_block_sum(x);
  if (threadIdx.x == blockDim.x - 1)
    out[blockIdx.x] = x;
}

static __global__ void reverse(float *out, const float *in, int n, int has_barrier) {
  __shared__ float shared[256];
  int i = threadIdx.x;
  shared[i] = in[i];
  if (has_barrier)
    __syncthreads();
  out[i] = shared[n - 1 - i];
}

static __global__ void diverge(float *out, int by_shuffle) {
  if (threadIdx.x % 2)
    return;
  if (by_shuffle)
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 2);
  else
    __syncthreads();
}

static __global__ void count(int *counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned hits = __ballot_sync(0xffffffffu, i < n && i % 3 == 0);
  if (threadIdx.x % 32 == 0)
    atomicAdd(counts, __popc(hits));
}

static __global__ void fault(struct cuda_fault *fault, int node) {
  looked_at = fault;
  seen = fault + 1;
  cuda_fault_set(fault, node, threadIdx.x + 100, threadIdx.x + 200);
}

void test_add_launch(float *out, const float *in, float x, int n, cudaStream_t stream) {
  CUDA_LAUNCH(add, cuda_blocks(n), CUDA_THREADS, stream, out, in, x, n);
}

void test_sum_launch(float *out, const float *in, int rows, int width, cudaStream_t stream) {
  CUDA_LAUNCH(sum, rows, 128, stream, out, in, width);
}

void test_reverse_launch(float *out, const float *in, int n, int has_barrier, cudaStream_t stream) {
  CUDA_LAUNCH(reverse, 1, n, stream, out, in, n, has_barrier);
}

void test_diverge_launch(float *out, int by_shuffle, cudaStream_t stream) {
  CUDA_LAUNCH(diverge, 1, 64, stream, out, by_shuffle);
}

void test_count_launch(int *counts, int n, cudaStream_t stream) {
  CUDA_LAUNCH(count, cuda_blocks(n), CUDA_THREADS, stream, counts, n);
}

void test_fault_launch(struct cuda_fault *faults, int node, cudaStream_t stream) {
  CUDA_LAUNCH(fault, 1, 64, stream, faults, node);
}

/* What the CUDA C files of this folder share. Kernels are plain: no templates, static shared memory, blocks
   of at most 1024 threads in one dimension, no atomics on reals (their order is not fixed), so that the same
   launch gives the same bits. They are launched by CUDA_LAUNCH alone, which a build for machines without a
   GPU replaces (tests/simulation/cuda).

   Every launcher is extern "C", named cuda_NOUN_launch or cuda_VERB_NOUN, declared in the header beside the
   file, takes the stream last, launches and returns. The function that enqueues the step asks
   cudaGetLastError. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_DEVICE_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_DEVICE_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifndef CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, blocks, threads, stream, ...)                                                    \
  kernel<<<(unsigned)(blocks), (unsigned)(threads), 0, stream>>>(__VA_ARGS__)
#endif

enum { CUDA_WARP = 32, CUDA_THREADS = 256 };

/* Blocks of CUDA_THREADS for n elements; kernels stride over what a grid of that many leaves. */
static inline int64_t cuda_blocks(int64_t n) {
  int64_t blocks = (n + CUDA_THREADS - 1) / CUDA_THREADS;
  return blocks < 1 ? 1 : blocks > 65535 * 16 ? 65535 * 16 : blocks;
}

/* for (i = CUDA_FIRST; i < n; i += CUDA_STRIDE) */
#define CUDA_FIRST ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define CUDA_STRIDE ((int64_t)gridDim.x * blockDim.x)

/* The bits of sum_of (common/agree/sum.h) on the host: subnormals count as zero, with their sign. */
static __device__ inline float cuda_flushed(float x) {
  unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0 ? __uint_as_float(bits & 0x80000000u) : x;
}

static __device__ inline float cuda_sum_of(float a, float b) {
  return cuda_flushed(__fadd_rn(cuda_flushed(a), cuda_flushed(b)));
}

/* bf16 is the upper half of an f32; rounding is to nearest, ties to even; a NaN stays one. GPUs have an
   instruction for it, and for two at once. */
static __device__ inline float cuda_from_bf16(uint16_t bits) {
  return __uint_as_float((unsigned)bits << 16);
}

static __device__ inline uint16_t cuda_to_bf16(float x) {
#ifdef __CUDA_ARCH__
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  return rounded;
#else
  unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)((bits >> 16) | 0x0040u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

/* Two neighbours, of which `low` lies first. */
static __device__ inline uint32_t cuda_to_bf16_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return (uint32_t)cuda_to_bf16(high) << 16 | cuda_to_bf16(low);
#endif
}

/* Element i (of the bytes, not of the shape) of an F32 or BF16 tensor. */
static __device__ inline float cuda_load(const struct cuda_tensor *t, int64_t i) {
  return t->type == CUDA_F32 ? ((const float *)t->data)[i] : cuda_from_bf16(((const uint16_t *)t->data)[i]);
}

static __device__ inline void cuda_store(const struct cuda_tensor *t, int64_t i, float x) {
  if (t->type == CUDA_F32)
    ((float *)t->data)[i] = x;
  else
    ((uint16_t *)t->data)[i] = cuda_to_bf16(x);
}

/* Sums and maxima over the block's threads (a multiple of 32, at most 1024), the same bits each time; every
   thread gets the result. All threads must call it. */
static __device__ inline float cuda_block_sum(float x) {
  __shared__ float parts[32];
  int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  __syncthreads(); /* parts of the call before are read */
  if (lane == 0)
    parts[warp] = x;
  __syncthreads();
  x = lane < warps ? parts[lane] : 0.0f;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

static __device__ inline float cuda_block_max(float x) {
  __shared__ float parts[32];
  int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  __syncthreads();
  if (lane == 0)
    parts[warp] = x;
  __syncthreads();
  x = lane < warps ? parts[lane] : -INFINITY;
  for (int offset = CUDA_WARP / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

/* Notes that element `place` of an input of node `node` has a value that it must not have. The node is
   written last: a copy that is made meanwhile holds no fault, or all of it. */
static __device__ inline void cuda_fault_set(struct cuda_fault *fault, int node, int64_t value,
                                             int64_t place) {
  if (atomicCAS(&fault->is_claimed, 0, 1) != 0)
    return;
  fault->value = value;
  fault->place = place;
  __threadfence();
  atomicExch(&fault->node, node + 1);
}

#endif

/* CUDA C for the compiler of the host: included before a .cu file, which is then C++. The threads of a block
   are fibers of one host thread (block.c), so blocks do not run beside one another, and a shared variable is
   not cleared between blocks. What a GPU computes otherwise in the last bit (division, exponentials, fused
   multiply-add) is the host's here. Only what our kernels use is here; shared memory is static. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_DEVICE_SIMULATION_H
#define WEIR_TESTS_SIMULATION_CUDA_DEVICE_SIMULATION_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/simulation/cuda/launch.h"

#undef __shared__
#define __shared__ static __thread
#undef __launch_bounds__
#define __launch_bounds__(...)
#define __syncthreads() sim_block_barrier()

extern "C" {
struct sim_here {
  uint3 thread, block;
  dim3 threads, blocks;
};
extern __thread struct sim_here sim_here __attribute__((visibility("hidden")));
void sim_block_barrier(void);
/* What each lane of the warp brought to this exchange; good until the caller's next. */
const uint64_t *sim_warp_exchange(unsigned mask, uint64_t value);
}

#define threadIdx (sim_here.thread)
#define blockIdx (sim_here.block)
#define blockDim (sim_here.threads)
#define gridDim (sim_here.blocks)
#define warpSize 32

#define CUDA_LAUNCH(kernel, blocks, threads, stream, ...)                                                    \
  sim_launch_kernel(sim_launch{#kernel, (unsigned)(blocks), (unsigned)(threads), nullptr, nullptr}, kernel,  \
                    stream, __VA_ARGS__)

/* Parameters are kept by value, as a launch does. */
template <class... Parameters> struct sim_call {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> parameters;
  static void run(const void *self) {
    const sim_call *call = static_cast<const sim_call *>(self);
    std::apply(call->kernel, call->parameters);
  }
};

template <class... Parameters, class... Arguments>
static inline void sim_launch_kernel(sim_launch launch, void (*kernel)(Parameters...), cudaStream_t stream,
                                     Arguments... arguments) {
  using Call = sim_call<Parameters...>;
  static_assert((std::is_trivially_copyable<Parameters>::value && ...), "parameters are copied as bytes");
  static_assert(sizeof(std::tuple<Parameters...>) <= 4096, "parameters of a kernel: at most 4 KiB");
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "as many arguments as parameters");
  launch.call = Call::run;
  launch.arguments = sim_arguments_new(sizeof(Call));
  new (launch.arguments) Call{kernel, std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)};
  sim_launch_enqueue(&launch, stream);
}

static inline int sim_lane() {
  return (int)(threadIdx.x % 32);
}

template <class T> static inline T sim_shuffle(unsigned mask, T value, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  const uint64_t *lanes = sim_warp_exchange(mask, bits);
  memcpy(&value, &lanes[from & 31], sizeof value);
  return value;
}

/* From another lane of the caller's part of `width` lanes; beyond it, the caller's own value. */
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  int from = sim_lane() ^ bits;
  return sim_shuffle(mask, value, from < (sim_lane() & ~(width - 1)) + width ? from : sim_lane());
}

template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int from = sim_lane() + (int)by;
  return sim_shuffle(mask, value, from < (sim_lane() & ~(width - 1)) + width ? from : sim_lane());
}

template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  int from = sim_lane() - (int)by;
  return sim_shuffle(mask, value, from >= (sim_lane() & ~(width - 1)) ? from : sim_lane());
}

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t *lanes = sim_warp_exchange(mask, predicate != 0);
  unsigned result = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1 && lanes[lane])
      result |= 1u << lane;
  return result;
}

/* Integers alone: the order of atomics on reals is not fixed. Host threads may simulate side by side. */
#define SIM_ATOMIC(T)                                                                                        \
  static inline T atomicAdd(T *at, T x) {                                                                    \
    return __atomic_fetch_add(at, x, __ATOMIC_RELAXED);                                                      \
  }                                                                                                          \
  static inline T atomicExch(T *at, T x) {                                                                   \
    return __atomic_exchange_n(at, x, __ATOMIC_RELAXED);                                                     \
  }                                                                                                          \
  static inline T atomicOr(T *at, T x) {                                                                     \
    return __atomic_fetch_or(at, x, __ATOMIC_RELAXED);                                                       \
  }                                                                                                          \
  static inline T atomicCAS(T *at, T expected, T x) {                                                        \
    __atomic_compare_exchange_n(at, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                \
    return expected;                                                                                         \
  }
SIM_ATOMIC(int)
SIM_ATOMIC(unsigned)
SIM_ATOMIC(unsigned long long)
#undef SIM_ATOMIC

static inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <class To, class From> static inline To sim_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "the same bits");
  memcpy(&to, &from, sizeof to);
  return to;
}

static inline float __uint_as_float(unsigned x) {
  return sim_bits<float>(x);
}
static inline unsigned __float_as_uint(float x) {
  return sim_bits<unsigned>(x);
}
static inline float __fmul_rn(float x, float y) {
  return x * y;
}
static inline float __fadd_rn(float x, float y) {
  return x + y;
}

static inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}

#define SIM_MIN_MAX(T)                                                                                       \
  static inline T min(T x, T y) {                                                                            \
    return x < y ? x : y;                                                                                    \
  }                                                                                                          \
  static inline T max(T x, T y) {                                                                            \
    return x > y ? x : y;                                                                                    \
  }
SIM_MIN_MAX(int)
SIM_MIN_MAX(unsigned)
SIM_MIN_MAX(long)
SIM_MIN_MAX(unsigned long)
SIM_MIN_MAX(long long)
SIM_MIN_MAX(unsigned long long)
#undef SIM_MIN_MAX
static inline float min(float x, float y) {
  return fminf(x, y);
}
static inline float max(float x, float y) {
  return fmaxf(x, y);
}
static inline double min(double x, double y) {
  return fmin(x, y);
}
static inline double max(double x, double y) {
  return fmax(x, y);
}

#endif

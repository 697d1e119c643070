/* Eight neighbouring elements as one thread takes them: 16-byte loads and stores, of bf16 one, of f32 two.
   They are loaded as they lie, before the first is used, so that several loads can be under way. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_LANES_CUH
#define WEIR_WORKER_BACKEND_CUDA_ROWS_LANES_CUH

#include "worker/backend/cuda/engine/device.h"

enum { CUDA_LANES = 8 };

struct cuda_lanes {
  float at[CUDA_LANES];
};

/* F32: an element a word. BF16: two a word, in the first half of the words. */
struct cuda_raw_lanes {
  uint32_t word[CUDA_LANES];
};

/* What is indexed by the counter of such a loop stays in registers. CUDA_ROLLED: the loads of the next round
   take none before they are due. */
#ifdef __CUDACC__
#define CUDA_UNROLLED _Pragma("unroll")
#define CUDA_ROLLED _Pragma("unroll 1")
#else
#define CUDA_UNROLLED
#define CUDA_ROLLED
#endif
#define CUDA_EACH_LANE(k) CUDA_UNROLLED for (int k = 0; k < CUDA_LANES; k++)
#define CUDA_EACH(b, n) CUDA_UNROLLED for (int b = 0; b < n; b++)

/* How many of the lanes from element i on there are. */
static __device__ __forceinline__ int cuda_lanes_left(int64_t i, int64_t elems) {
  return elems - i < CUDA_LANES ? (int)(elems - i) : (int)CUDA_LANES;
}

static __device__ __forceinline__ void cuda_words_load(const uint4 *from, uint32_t *words) {
  uint4 four = *from;
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

/* Elements i to i + n - 1, where i is a multiple of CUDA_LANES; the lanes behind them are 0. */
static __device__ __forceinline__ struct cuda_raw_lanes cuda_raw_load(const struct cuda_tensor *t, int64_t i,
                                                                      int n) {
  struct cuda_raw_lanes raw = {};
  if (n == CUDA_LANES) {
    const uint4 *from = (const uint4 *)((const char *)t->data + i * (t->type == CUDA_F32 ? 4 : 2));
    cuda_words_load(from, raw.word);
    if (t->type == CUDA_F32)
      cuda_words_load(from + 1, raw.word + CUDA_LANES / 2);
    return raw;
  }
  CUDA_EACH_LANE(k) {
    if (k < n && t->type == CUDA_F32)
      raw.word[k] = ((const uint32_t *)t->data)[i + k];
    else if (k < n)
      raw.word[k / 2] |= (uint32_t)((const uint16_t *)t->data)[i + k] << k % 2 * 16;
  }
  return raw;
}

static __device__ __forceinline__ float cuda_raw_lane(const struct cuda_tensor *t,
                                                      const struct cuda_raw_lanes *raw, int k) {
  uint32_t pair = raw->word[k / 2];
  return __uint_as_float(t->type == CUDA_F32 ? raw->word[k] : k % 2 ? pair & 0xffff0000u : pair << 16);
}

static __device__ __forceinline__ struct cuda_raw_lanes cuda_pairs_of(const struct cuda_lanes *x) {
  struct cuda_raw_lanes raw = {};
  CUDA_EACH(k, CUDA_LANES / 2)
  raw.word[k] = cuda_to_bf16_pair(x->at[2 * k], x->at[2 * k + 1]);
  return raw;
}

static __device__ __forceinline__ void cuda_pairs_store(const struct cuda_tensor *t, int64_t i,
                                                        struct cuda_raw_lanes raw) {
  uint4 eight = {raw.word[0], raw.word[1], raw.word[2], raw.word[3]};
  *(uint4 *)((uint16_t *)t->data + i) = eight;
}

static __device__ __forceinline__ void cuda_lanes_store(const struct cuda_tensor *t, int64_t i, int n,
                                                        const struct cuda_lanes *x) {
  if (n < CUDA_LANES) {
    CUDA_EACH_LANE(k)
    if (k < n)
      cuda_store(t, i + k, x->at[k]);
  } else if (t->type == CUDA_F32) {
    float4 *to = (float4 *)((float *)t->data + i);
    float4 low = {x->at[0], x->at[1], x->at[2], x->at[3]}, high = {x->at[4], x->at[5], x->at[6], x->at[7]};
    to[0] = low;
    to[1] = high;
  } else {
    cuda_pairs_store(t, i, cuda_pairs_of(x));
  }
}

/* Elements i to i + 7, where i is a multiple of CUDA_LANES. */
static __device__ __forceinline__ void cuda_floats_load(const float *from, int64_t i,
                                                        float lanes[CUDA_LANES]) {
  const float4 *fours = (const float4 *)(from + i);
  float4 low = fours[0], high = fours[1];
  lanes[0] = low.x, lanes[1] = low.y, lanes[2] = low.z, lanes[3] = low.w;
  lanes[4] = high.x, lanes[5] = high.y, lanes[6] = high.z, lanes[7] = high.w;
}

#endif

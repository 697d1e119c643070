/* Max pools of planes whose channels are last, by eights. A thread makes eight neighbouring channels: forward
   of a window, backward of an element of the input, where it adds what the windows that saw the element have
   for it, in their order, so that nothing needs atomics. All loads and stores are of 16 bytes, or of 8 where
   they are of taps, which a byte each says which of its window's elements is the greatest. Several loads are
   under way before the first is used. */
#include "worker/backend/cuda/conv/pool.h"
#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/rows/lanes.cuh"

enum {
  TAPS_AT_ONCE = 3,    /* neighbours along a line of a window */
  WINDOWS_AT_ONCE = 2, /* neighbours along a line that saw an element */
  NO_TAP = 255         /* that of no window */
};

/* The last two dimensions of planes: 1 and 2, here 0 and 1. */
struct wide {
  int64_t n; /* threads that have something to do */
  struct cuda_divisor groups, width, height, strides[2];
  int in[2], out[2], kernel[2], stride[2], pad[2];
  struct cuda_tensor from, to;
  uint8_t *taps; /* NULL: nobody wants them */
};

/* What a thread makes: eight channels of an element. */
struct spot {
  uint32_t group, at[2], sample;
};

/* n / d->by, for what is below 2^31. */
static __device__ __forceinline__ uint32_t quotient_of(const struct cuda_divisor *d, uint32_t n) {
  return ((uint32_t)((uint64_t)n * d->multiplier >> 32) + n) >> d->shift;
}

static __device__ __forceinline__ uint32_t digit_of(const struct cuda_divisor *d, uint32_t *n) {
  uint32_t quotient = quotient_of(d, *n), digit = *n - quotient * (uint32_t)d->by;
  *n = quotient;
  return digit;
}

static __device__ __forceinline__ struct spot spot_of(const struct wide *w, uint32_t e) {
  struct spot spot;
  spot.group = digit_of(&w->groups, &e);
  spot.at[1] = digit_of(&w->width, &e);
  spot.at[0] = digit_of(&w->height, &e);
  spot.sample = e;
  return spot;
}

/* Which eight of a tensor with planes of shape `dim` lies at (0, column) of the line. */
static __device__ __forceinline__ int64_t eight_at(const struct wide *w, const struct spot *spot,
                                                   const int *dim, int line, int column) {
  uint32_t place = (spot->sample * (uint32_t)dim[0] + (uint32_t)line) * (uint32_t)dim[1] + (uint32_t)column;
  return place * (uint32_t)w->groups.by + spot->group;
}

/* The greatest of each channel so far. The first tap's is at first less than all, so that NaN is taken once,
   and of equals the first; a tap that is seen again changes nothing. Who asks for a tap has seen its window:
   of those on padding alone nobody does. */
struct greatest {
  struct cuda_lanes x;
  uint32_t tap[CUDA_LANES];
};

static __device__ __forceinline__ void greatest_take(struct greatest *greatest,
                                                     const struct cuda_tensor *from,
                                                     const struct cuda_raw_lanes *raw, uint32_t tap) {
  CUDA_EACH_LANE(k) {
    float x = cuda_raw_lane(from, raw, k), before = greatest->x.at[k];
    bool is_greater = !(x <= before) && !isnan(before);
    greatest->x.at[k] = is_greater ? x : before;
    greatest->tap[k] = is_greater ? tap : greatest->tap[k];
  }
}

static __device__ __forceinline__ void taps_store(uint8_t *taps, int64_t eight, const uint32_t *tap) {
  uint2 bytes = {tap[0] | tap[1] << 8 | tap[2] << 16 | tap[3] << 24,
                 tap[4] | tap[5] << 8 | tap[6] << 16 | tap[7] << 24};
  *(uint2 *)(taps + eight * CUDA_LANES) = bytes;
}

static __device__ __forceinline__ void windows_take(const struct wide *w) {
  for (int64_t e = CUDA_FIRST; e < w->n; e += CUDA_STRIDE) {
    struct spot spot = spot_of(w, (uint32_t)e);
    int line = (int)spot.at[0] * w->stride[0] - w->pad[0],
        column = (int)spot.at[1] * w->stride[1] - w->pad[1];
    int a_begin = max(-line, 0), a_end = min(w->kernel[0], w->in[0] - line);
    int b_begin = max(-column, 0), b_end = min(w->kernel[1], w->in[1] - column);
    struct greatest greatest;
    CUDA_EACH_LANE(k) {
      greatest.x.at[k] = -INFINITY;
      greatest.tap[k] = (uint32_t)(a_begin * w->kernel[1] + b_begin);
    }
    for (int a = a_begin; a < a_end; a++)
      for (int b = b_begin; b < b_end; b += TAPS_AT_ONCE) {
        struct cuda_raw_lanes raw[TAPS_AT_ONCE];
        CUDA_EACH(t, TAPS_AT_ONCE)
        raw[t] = cuda_raw_load(
            &w->from, eight_at(w, &spot, w->in, line + a, column + min(b + t, b_end - 1)) * CUDA_LANES,
            CUDA_LANES);
        CUDA_EACH(t, TAPS_AT_ONCE)
        greatest_take(&greatest, &w->from, &raw[t], (uint32_t)(a * w->kernel[1] + min(b + t, b_end - 1)));
      }
    if (w->to.data)
      cuda_lanes_store(&w->to, e * CUDA_LANES, CUDA_LANES, &greatest.x);
    if (w->taps)
      taps_store(w->taps, e, greatest.tap);
  }
}

/* The windows along a dimension that saw element `at`: from first to last. */
static __device__ __forceinline__ void window_range(const struct wide *w, int d, uint32_t at, int *first,
                                                    int *last) {
  int from_begin = (int)at + w->pad[d], behind = from_begin - w->kernel[d];
  *first = behind < 0 ? 0 : (int)quotient_of(&w->strides[d], (uint32_t)behind) + 1;
  *last = min(w->out[d] - 1, (int)quotient_of(&w->strides[d], (uint32_t)from_begin));
}

/* Adds the gradients of the channels in which the window's tap is this one. */
static __device__ __forceinline__ void sums_add(struct cuda_lanes *sums, const struct cuda_tensor *from,
                                                const struct cuda_raw_lanes *raw, uint2 taps, uint32_t tap) {
  CUDA_EACH_LANE(k) {
    uint32_t differs = ((k < CUDA_LANES / 2 ? taps.x : taps.y) ^ tap * 0x01010101u) & 0xffu << k % 4 * 8;
    if (differs == 0)
      sums->at[k] += cuda_raw_lane(from, raw, k);
  }
}

static __device__ __forceinline__ void elements_add(const struct wide *w) {
  for (int64_t e = CUDA_FIRST; e < w->n; e += CUDA_STRIDE) {
    struct spot spot = spot_of(w, (uint32_t)e);
    struct cuda_lanes sums = {};
    int first[2], last[2];
    CUDA_EACH(d, 2) window_range(w, d, spot.at[d], &first[d], &last[d]);
    for (int a = first[0]; a <= last[0]; a++) {
      int line = (int)spot.at[0] + w->pad[0] - a * w->stride[0];
      for (int b = first[1]; b <= last[1]; b += WINDOWS_AT_ONCE) {
        struct cuda_raw_lanes raw[WINDOWS_AT_ONCE];
        uint2 taps[WINDOWS_AT_ONCE];
        CUDA_EACH(t, WINDOWS_AT_ONCE) {
          int64_t eight = eight_at(w, &spot, w->out, a, min(b + t, last[1]));
          raw[t] = cuda_raw_load(&w->from, eight * CUDA_LANES, CUDA_LANES);
          taps[t] = *(const uint2 *)(w->taps + eight * CUDA_LANES);
        }
        CUDA_EACH(t, WINDOWS_AT_ONCE) {
          int column = (int)spot.at[1] + w->pad[1] - (b + t) * w->stride[1];
          uint32_t tap = b + t > last[1] ? (uint32_t)NO_TAP : (uint32_t)(line * w->kernel[1] + column);
          sums_add(&sums, &w->from, &raw[t], taps[t], tap);
        }
      }
    }
    cuda_lanes_store(&w->to, e * CUDA_LANES, CUDA_LANES, &sums);
  }
}

/* The type of what is read is known to the compiler, so that loads need not wait for it. */
#define POOL_WIDE_KERNELS(name, from_type)                                                                   \
  static __global__ void pool_wide_##name(struct wide w) {                                                   \
    w.from.type = from_type;                                                                                 \
    windows_take(&w);                                                                                        \
  }                                                                                                          \
  static __global__ void pool_wide_grad_##name(struct wide w) {                                              \
    w.from.type = from_type;                                                                                 \
    elements_add(&w);                                                                                        \
  }

POOL_WIDE_KERNELS(f32, CUDA_F32)
POOL_WIDE_KERNELS(bf16, CUDA_BF16)

/* made: the shape of the planes of `to`. */
static struct wide wide_of(const struct cuda_pool *pool, const int *made, const struct cuda_tensor *from,
                           const struct cuda_tensor *to) {
  struct wide w;
  w.n = pool->planes / CUDA_LANES * made[1] * made[2];
  w.groups = cuda_divisor_of(pool->channels / CUDA_LANES);
  w.height = cuda_divisor_of(made[1]);
  w.width = cuda_divisor_of(made[2]);
  for (int d = 0; d < 2; d++) {
    w.in[d] = pool->in[d + 1];
    w.out[d] = pool->out[d + 1];
    w.kernel[d] = pool->kernel[d + 1];
    w.stride[d] = pool->stride[d + 1];
    w.pad[d] = pool->pad_begin[d + 1];
    w.strides[d] = cuda_divisor_of(w.stride[d]);
  }
  w.from = *from;
  w.to = *to;
  w.taps = (uint8_t *)pool->places;
  return w;
}

extern "C" bool cuda_pool_is_wide(const struct cuda_pool *pool) {
  if (pool->kind != POOL_MAX || pool->layout != CUDA_CHANNELS_LAST || pool->channels % CUDA_LANES != 0 ||
      pool->in[0] != 1 || pool->out[0] != 1 || pool->kernel[0] != 1)
    return false;
  for (int d = 1; d < POOL_DIMS; d++)
    if (pool->dilation[d] != 1 || pool->stride[d] <= 0 || pool->pad_begin[d] < 0)
      return false;
  return (int64_t)pool->kernel[1] * pool->kernel[2] < NO_TAP;
}

extern "C" void cuda_pool_wide_launch(const struct cuda_pool *pool, cudaStream_t stream) {
  struct wide w = wide_of(pool, pool->out, &pool->x, &pool->y);
  if (w.from.type == CUDA_F32)
    CUDA_LAUNCH(pool_wide_f32, cuda_blocks(w.n), CUDA_THREADS, stream, w);
  else
    CUDA_LAUNCH(pool_wide_bf16, cuda_blocks(w.n), CUDA_THREADS, stream, w);
}

extern "C" void cuda_pool_wide_grad_launch(const struct cuda_pool *pool, cudaStream_t stream) {
  struct wide w = wide_of(pool, pool->in, &pool->dy, &pool->dx);
  if (w.from.type == CUDA_F32)
    CUDA_LAUNCH(pool_wide_grad_f32, cuda_blocks(w.n), CUDA_THREADS, stream, w);
  else
    CUDA_LAUNCH(pool_wide_grad_bf16, cuda_blocks(w.n), CUDA_THREADS, stream, w);
}

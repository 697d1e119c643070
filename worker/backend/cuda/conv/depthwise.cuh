/* What the kernels of depthwise convolutions share: how work is divided among threads, and vectors of
   channels. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_DEPTHWISE_CUH
#define WEIR_WORKER_BACKEND_CUDA_CONV_DEPTHWISE_CUH

#include "worker/backend/cuda/conv/depthwise.h"
#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/rows/lanes.cuh"

enum {
  DEPTHWISE_LANES = 4,   /* channels of a vector: 16 bytes of f32, 8 of bf16 */
  DEPTHWISE_COLUMNS = 4, /* windows of a thread, neighbours along a row, where the kernel is a constant */
  DEPTHWISE_TILE = 16,   /* vectors of a block, at most */
  DEPTHWISE_TILE_LEAST = 8,
};

/* A block takes a tile of neighbouring vectors of channels, a thread one of them; `slots` threads of the
   block share a vector. A place is a group of neighbouring columns in a row of an image. */
struct depthwise_split {
  int vectors, tile, tiles, slots;
  int places;
  struct cuda_divisor groups, rows; /* groups of a row, rows of an image */
};

struct depthwise_place {
  int n, row, group;
};

/* Few threads are without a vector, and those that have one read long runs of channels. */
static inline int depthwise_tile(int vectors) {
  int best = DEPTHWISE_TILE;
  if (vectors <= DEPTHWISE_TILE)
    return vectors;
  for (int tile = DEPTHWISE_TILE; tile >= DEPTHWISE_TILE_LEAST; tile--)
    if ((vectors + tile - 1) / tile * tile < (vectors + best - 1) / best * best)
      best = tile;
  return best;
}

static inline struct depthwise_split depthwise_split_of(const struct cuda_depthwise *shape, int lanes,
                                                        int rows, int groups) {
  struct depthwise_split split = {};
  split.vectors = shape->channels / lanes;
  split.tile = depthwise_tile(split.vectors);
  split.tiles = (split.vectors + split.tile - 1) / split.tile;
  split.slots = CUDA_THREADS / split.tile;
  split.places = shape->n * rows * groups;
  split.groups = cuda_divisor_of(groups);
  split.rows = cuda_divisor_of(rows);
  return split;
}

/* Vectors, where channels make whole ones. */
static inline bool depthwise_has_vectors(const struct cuda_depthwise *shape) {
  return shape->channels % DEPTHWISE_LANES == 0;
}

/* The kernel's size, if it is one of those that kernels are compiled for; else 0. */
static inline int depthwise_constant(const struct cuda_depthwise *shape) {
  int size = shape->kernel[0], stride = shape->stride[0];
  bool is_square = shape->kernel[1] == size && shape->stride[1] == stride && shape->dilation[0] == 1 &&
                   shape->dilation[1] == 1 && shape->pad[0] >= 0 && shape->pad[1] >= 0;
  return is_square && depthwise_has_vectors(shape) && (size == 3 || size == 5) && stride <= 2 ? size : 0;
}

static __device__ __forceinline__ struct depthwise_place
depthwise_place_of(const struct depthwise_split *split, int index) {
  int line = cuda_divide_int(&split->groups, index), n = cuda_divide_int(&split->rows, line);
  struct depthwise_place place = {n, line - n * (int)split->rows.by, index - line * (int)split->groups.by};
  return place;
}

/* Neighbouring channels as they lie, before the first is used, so that several loads are under way. F32: one
   a word; BF16: two. */
struct depthwise_raw {
  uint32_t word[DEPTHWISE_LANES];
};

/* `lanes` elements from element i on; lanes: DEPTHWISE_LANES or 1. */
static __device__ __forceinline__ struct depthwise_raw depthwise_load(const void *data, bool is_bf16,
                                                                      int lanes, int i) {
  struct depthwise_raw raw = {};
  if (lanes == 1) {
    raw.word[0] = is_bf16 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
  } else if (is_bf16) {
    uint2 two = *(const uint2 *)((const uint16_t *)data + i);
    raw.word[0] = two.x, raw.word[1] = two.y;
  } else {
    cuda_words_load((const uint4 *)((const uint32_t *)data + i), raw.word);
  }
  return raw;
}

static __device__ __forceinline__ float depthwise_lane(const struct depthwise_raw *raw, bool is_bf16, int k) {
  uint32_t pair = raw->word[k / 2];
  return __uint_as_float(!is_bf16 ? raw->word[k] : k % 2 ? pair & 0xffff0000u : pair << 16);
}

#endif

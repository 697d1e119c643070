/* Helpers of optimizers that treat each element by itself. Scalars are computed in f64 from the step alone,
   so that a resumed run goes on with the same numbers. Elements are f32, in loops that become vector code
   (VECTOR_VARIANTS stands before a function with such a loop), a tile at a time:

     _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
     EACH_TILE(tile, update, out) {
       const float *weights = tile.weights;
       const uint32_t elems = tile.elems;
       for (uint32_t i = 0; i < elems; i++)
         out[i] = ... weights[i] ...;
     }

   The next weights are other memory than the present ones. A usual store reads the line of the cache that it
   writes to first. So a loop drafts a tile, which stays in the cache, and the tile is stored past it. */
#ifndef WEIR_COMMON_OPTIM_OPTIMIZERS_ELEMENTWISE_H
#define WEIR_COMMON_OPTIM_OPTIMIZERS_ELEMENTWISE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "common/base/vector_variants.h"
#include "common/optim/optimizer.h"

enum { TILE_ELEMS = 64, TILE_ALIGN = 64 };

/* Some of an update's elements. Tiles of TILE_ELEMS begin at a line of `out`. */
struct tile {
  const struct optimizer_update *update;
  const float *weights, *grads; /* f32[elems] */
  uint32_t begin, elems;
};

static inline uint32_t tile_size(const struct optimizer_update *update, uint32_t begin) {
  uint32_t left = update->elems - begin;
  uint32_t behind_line = (uint32_t)((uintptr_t)(update->out + begin) % TILE_ALIGN / sizeof(float));
  return left < TILE_ELEMS - behind_line ? left : TILE_ELEMS - behind_line;
}

static inline struct tile tile_at(const struct optimizer_update *update, uint32_t begin) {
  return (struct tile){update, update->weights + begin, update->grad + begin, begin,
                       tile_size(update, begin)};
}

/* What is there before others see that the update is done. */
static inline void tile_store(const struct tile *tile, const float *draft) {
  float *out = tile->update->out + tile->begin;
#ifdef __SSE__
  if (tile->elems == TILE_ELEMS) {
    for (uint32_t i = 0; i < TILE_ELEMS; i += 4)
      _mm_stream_ps(out + i, _mm_load_ps(draft + i));
    return;
  }
#endif
  memcpy(out, draft, tile->elems * sizeof *out);
}

/* Stores streamed past the cache come before all later ones of this thread. */
static inline void tiles_end(void) {
#ifdef __SSE__
  _mm_sfence();
#endif
}

static inline struct tile tile_next(const struct tile *tile, const float *draft) {
  tile_store(tile, draft);
  if (tile->begin + tile->elems == tile->update->elems)
    tiles_end();
  return tile_at(tile->update, tile->begin + tile->elems);
}

/* A loop over the tiles of an update; what its body drafts is the next weights of the tile. */
#define EACH_TILE(tile, update, draft)                                                                       \
  for (struct tile tile = tile_at(update, 0); (tile).elems > 0; (tile) = tile_next(&(tile), draft))

/* The present and the next value of one slot, f32[tile.elems] each; may be the same memory. */
struct slot {
  const float *now;
  float *next;
};

static inline struct slot tile_slot(const struct tile *tile, uint32_t index) {
  const struct optimizer_update *update = tile->update;
  size_t at = (size_t)index * update->elems + tile->begin;
  return (struct slot){update->slots + at, update->next_slots + at};
}

/* Of all elements, where a loop does without tiles. */
static inline struct slot update_slot(const struct optimizer_update *update, uint32_t index) {
  size_t at = (size_t)index * update->elems;
  return (struct slot){update->slots + at, update->next_slots + at};
}

/* Weight decay is coupled, a penalty whose gradient is added to the loss's, or decoupled, a shrinking of the
   weights beside the update (Loshchilov and Hutter, 2019). One of the two factors is 0. */
struct weight_decay {
  float penalty, shrink;
};

static inline struct weight_decay weight_decay_of(const Weir__OptimizerSpec *spec, double lr,
                                                  bool is_decoupled) {
  return is_decoupled ? (struct weight_decay){0, (float)(lr * spec->weight_decay)}
                      : (struct weight_decay){(float)spec->weight_decay, 0};
}

static inline float decay_grad(struct weight_decay decay, float grad, float weight) {
  return grad + decay.penalty * weight;
}

static inline float decay_weight(struct weight_decay decay, float weight) {
  return weight - decay.shrink * weight;
}

/* `from` with a share of the way to `to`. */
static inline float moved_towards(float from, float to, float share) {
  return from + share * (to - from);
}

/* 1 - beta^(step + 1): what a mean that began at zero lacks after this step. */
static inline double bias_correction(double beta, uint64_t step) {
  return 1 - pow(beta, (double)(step + 1));
}

#endif

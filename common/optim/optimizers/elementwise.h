/* Helpers of optimizers that treat each element by itself. Scalars are computed in f64 from the step alone,
   so that a resumed run goes on with the same numbers. Elements are f32, in loops that become vector code
   (VECTOR_VARIANTS stands before a function with such a loop). */
#ifndef WEIR_COMMON_OPTIM_OPTIMIZERS_ELEMENTWISE_H
#define WEIR_COMMON_OPTIM_OPTIMIZERS_ELEMENTWISE_H

#include <math.h>

#include "common/base/vector_variants.h"
#include "common/optim/optimizer.h"

/* The present and the next value of one slot, f32[elems] each; may be the same memory. */
struct slot {
  const float *now;
  float *next;
};

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

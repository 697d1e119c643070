/* RMSprop (Hinton's lecture 6; centered: Graves, 2013, equations 38 to 45), as torch.optim.RMSprop. */
#include "common/optim/optimizers/elementwise.h"

static const struct option_rule rmsprop_options[] = {
    {.name = "alpha", .range = OPTION_FROM_0_TO_1, .number = 0.99},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "momentum", .range = OPTION_FROM_0_BELOW_1},
    {.name = "centered"},
    {0},
};

static uint32_t rmsprop_slots(const Weir__OptimizerSpec *spec) {
  return 1 + (spec->momentum > 0) + spec->centered;
}

static uint32_t rmsprop_slots_kind(const Weir__OptimizerSpec *spec) {
  return (spec->momentum > 0) + 2 * (uint32_t)spec->centered;
}

/* Inlined with constants, so that each kind has a loop without branches. */
static inline __attribute__((always_inline)) void rmsprop_loop(const Weir__OptimizerSpec *spec,
                                                               const struct optimizer_update *update,
                                                               bool has_momentum, bool is_centered) {
  const float lr = (float)update->lr, eps = (float)spec->eps, momentum = (float)spec->momentum;
  const float alpha = (float)spec->alpha, share = (float)(1 - spec->alpha);
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot square = tile_slot(&tile, 0);
    struct slot velocity = has_momentum ? tile_slot(&tile, 1) : square;
    struct slot mean = is_centered ? tile_slot(&tile, 1 + has_momentum) : square;
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_square = alpha * square.now[i] + share * grad * grad, variance = next_square, move;
      if (is_centered) {
        float next_mean = moved_towards(mean.now[i], grad, share);
        mean.next[i] = next_mean;
        variance = next_square - next_mean * next_mean;
        variance = variance > 0 ? variance : 0; /* rounding */
      }
      square.next[i] = next_square;
      move = grad / (sqrtf(variance) + eps);
      if (has_momentum) {
        move = momentum * velocity.now[i] + move;
        velocity.next[i] = move;
      }
      out[i] = weights[i] - lr * move;
    }
  }
}

VECTOR_VARIANTS static void rmsprop_update(const Weir__OptimizerSpec *spec,
                                           const struct optimizer_update *update) {
  if (spec->momentum > 0 && spec->centered)
    rmsprop_loop(spec, update, true, true);
  else if (spec->momentum > 0)
    rmsprop_loop(spec, update, true, false);
  else if (spec->centered)
    rmsprop_loop(spec, update, false, true);
  else
    rmsprop_loop(spec, update, false, false);
}

const struct optimizer_def optimizer_rmsprop = {.name = "rmsprop",
                                                .options = rmsprop_options,
                                                .slots = rmsprop_slots,
                                                .slots_kind = rmsprop_slots_kind,
                                                .update = rmsprop_update};

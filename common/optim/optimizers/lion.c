/* Lion (Chen et al., 2023, algorithm 2). */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 1 };

static const struct option_rule lion_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.99}, .list_length = 2},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {0},
};

static uint32_t lion_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

VECTOR_VARIANTS static void lion_update(const Weir__OptimizerSpec *spec,
                                        const struct optimizer_update *update) {
  const float lr = (float)update->lr;
  const float share1 = (float)(1 - spec->betas[0]), share2 = (float)(1 - spec->betas[1]);
  const struct weight_decay decay = weight_decay_of(spec, update->lr, true);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot mean = tile_slot(&tile, 0);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float direction = moved_towards(mean.now[i], grads[i], share1);
      float sign = (float)((direction > 0) - (direction < 0));
      mean.next[i] = moved_towards(mean.now[i], grads[i], share2);
      out[i] = decay_weight(decay, weights[i]) - lr * sign;
    }
  }
}

const struct optimizer_def optimizer_lion = {
    .name = "lion", .options = lion_options, .slots = lion_slots, .update = lion_update};

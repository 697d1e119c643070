/* Adagrad (Duchi et al., 2011), as torch.optim.Adagrad. */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 1 };

static const struct option_rule adagrad_options[] = {
    {.name = "lr_decay", .range = OPTION_AT_LEAST_0},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "initial_accumulator_value", .range = OPTION_AT_LEAST_0},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-10},
    {0},
};

static uint32_t adagrad_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

static void adagrad_init_slots(const Weir__OptimizerSpec *spec, uint32_t elems, float *slots) {
  for (uint32_t i = 0; i < elems; i++)
    slots[i] = (float)spec->initial_accumulator_value;
}

VECTOR_VARIANTS static void adagrad_update(const Weir__OptimizerSpec *spec,
                                           const struct optimizer_update *update) {
  const float rate = (float)(update->lr / (1 + (double)update->step * spec->lr_decay));
  const float eps = (float)spec->eps;
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot sum = tile_slot(&tile, 0);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_sum = sum.now[i] + grad * grad;
      sum.next[i] = next_sum;
      out[i] = weights[i] - rate * grad / (sqrtf(next_sum) + eps);
    }
  }
}

const struct optimizer_def optimizer_adagrad = {.name = "adagrad",
                                                .options = adagrad_options,
                                                .slots = adagrad_slots,
                                                .init_slots = adagrad_init_slots,
                                                .update = adagrad_update};

/* Adam by the infinity norm (Kingma and Ba, 2015, algorithm 2), as torch.optim.Adamax. */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 2 };

static const struct option_rule adamax_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {0},
};

static uint32_t adamax_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

VECTOR_VARIANTS static void adamax_update(const Weir__OptimizerSpec *spec,
                                          const struct optimizer_update *update) {
  const float rate = (float)(update->lr / bias_correction(spec->betas[0], update->step));
  const float share1 = (float)(1 - spec->betas[0]);
  const float beta2 = (float)spec->betas[1], eps = (float)spec->eps;
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot mean = tile_slot(&tile, 0), norm = tile_slot(&tile, 1);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_mean = moved_towards(mean.now[i], grad, share1);
      float old = beta2 * norm.now[i], new = fabsf(grad) + eps;
      float next_norm = old > new ? old : new;
      mean.next[i] = next_mean;
      norm.next[i] = next_norm;
      out[i] = weights[i] - rate * next_mean / next_norm;
    }
  }
}

const struct optimizer_def optimizer_adamax = {
    .name = "adamax", .options = adamax_options, .slots = adamax_slots, .update = adamax_update};

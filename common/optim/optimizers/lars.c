/* LARS (You et al., 2017, algorithm 1): momentum, with a rate of each tensor's own. eps stands in the
   divisor; a tensor whose weights or gradient are 0 has the rate as it is. */
#include "common/optim/optimizers/by_tensor.h"

static const struct option_rule lars_options[] = {
    {.name = "momentum", .range = OPTION_FROM_0_BELOW_1, .number = 0.9},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "trust_coefficient", .range = OPTION_ABOVE_0, .number = 0.001},
    {.name = "eps", .range = OPTION_AT_LEAST_0, .number = 1e-8},
    {0},
};

static uint32_t lars_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return 1; /* the velocity */
}

static uint32_t lars_sums(const Weir__OptimizerSpec *spec, const struct optimizer_update *update,
                          uint32_t phase, double *sums) {
  (void)spec;
  (void)phase;
  sums[0] = vector_sum_squares(update->weights, update->elems);
  sums[1] = vector_sum_squares(update->grad, update->elems);
  return 2;
}

static double lars_rate(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  double weights = sqrt(update->totals[0][0]), grads = sqrt(update->totals[0][1]);
  if (!(weights > 0 && grads > 0))
    return update->lr;
  return update->lr * spec->trust_coefficient * weights / (grads + spec->weight_decay * weights + spec->eps);
}

VECTOR_VARIANTS static void lars_update(const Weir__OptimizerSpec *spec,
                                        const struct optimizer_update *update) {
  const float rate = (float)lars_rate(spec, update);
  const float momentum = (float)spec->momentum, decay = (float)spec->weight_decay;
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot velocity = tile_slot(&tile, 0);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float next = momentum * velocity.now[i] + rate * (grads[i] + decay * weights[i]);
      velocity.next[i] = next;
      out[i] = weights[i] - next;
    }
  }
}

const struct optimizer_def optimizer_lars = {.name = "lars",
                                             .options = lars_options,
                                             .slots = lars_slots,
                                             .update = lars_update,
                                             .n_phases = 1,
                                             .windows = two_norms,
                                             .sums = lars_sums};

/* Rectified Adam (Liu et al., 2020, algorithm 2), as torch.optim.RAdam. */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 2 };

static const struct option_rule radam_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "decoupled_weight_decay"},
    {0},
};

static uint32_t radam_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

/* How far the second moment can be trusted after this step; 0: not yet, plain momentum is used. */
static double radam_rectification(double beta2, uint64_t step) {
  double t = (double)step + 1, power = pow(beta2, t);
  double end = 2 / (1 - beta2) - 1, length = end - 2 * t * power / (1 - power);
  if (length <= 5)
    return 0;
  return sqrt((length - 4) * (length - 2) * end / ((end - 4) * (end - 2) * length));
}

VECTOR_VARIANTS static void radam_update(const Weir__OptimizerSpec *spec,
                                         const struct optimizer_update *update) {
  const double trust = radam_rectification(spec->betas[1], update->step);
  const double rate = update->lr / bias_correction(spec->betas[0], update->step);
  const float adaptive_rate = (float)(rate * trust * sqrt(bias_correction(spec->betas[1], update->step)));
  const float plain_rate = trust > 0 ? 0 : (float)rate;
  const float share1 = (float)(1 - spec->betas[0]), share2 = (float)(1 - spec->betas[1]);
  const float beta2 = (float)spec->betas[1], eps = (float)spec->eps;
  const struct weight_decay decay = weight_decay_of(spec, update->lr, spec->decoupled_weight_decay);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot mean = tile_slot(&tile, 0), square = tile_slot(&tile, 1);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_mean = moved_towards(mean.now[i], grad, share1);
      float next_square = beta2 * square.now[i] + share2 * grad * grad;
      float divisor = trust > 0 ? sqrtf(next_square) + eps : 1;
      mean.next[i] = next_mean;
      square.next[i] = next_square;
      out[i] = decay_weight(decay, weights[i]) - (adaptive_rate / divisor + plain_rate) * next_mean;
    }
  }
}

const struct optimizer_def optimizer_radam = {
    .name = "radam", .options = radam_options, .slots = radam_slots, .update = radam_update};

/* Adam with Nesterov momentum (Dozat, 2016), as torch.optim.NAdam. */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 2, SERIES_TERMS = 64 };

static const struct option_rule nadam_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "momentum_decay", .range = OPTION_AT_LEAST_0, .number = 4e-3},
    {.name = "decoupled_weight_decay"},
    {0},
};

static uint32_t nadam_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

/* The momentum of update t, from 1: beta1 * (1 - q^t / 2) with q = 0.96^momentum_decay. */
static double momentum_at(const Weir__OptimizerSpec *spec, double t) {
  return spec->betas[0] * (1 - 0.5 * pow(0.96, t * spec->momentum_decay));
}

/* The product of the momenta of updates 1 to t, without going through them: the logarithm of each factor
   1 - q^i / 2 is a power series in q^i / 2, and the sum of q^(k i) over i is geometric. Terms fall below
   2^-k.
 */
static double momentum_product(const Weir__OptimizerSpec *spec, double t) {
  double log_q = log(0.96) * spec->momentum_decay, sum = 0, half_power = 1;
  for (int k = 1; k <= SERIES_TERMS; k++) {
    double rate = k * log_q;
    double powers = rate == 0 ? t : exp(rate) * expm1(t * rate) / expm1(rate);
    half_power *= 0.5;
    sum += half_power / k * powers;
  }
  return pow(spec->betas[0], t) * exp(-sum);
}

VECTOR_VARIANTS static void nadam_update(const Weir__OptimizerSpec *spec,
                                         const struct optimizer_update *update) {
  const double t = (double)update->step + 1, momentum = momentum_at(spec, t);
  const double product = momentum_product(spec, t), next_momentum = momentum_at(spec, t + 1);
  const float grad_rate = (float)(update->lr * (1 - momentum) / (1 - product));
  const float mean_rate = (float)(update->lr * next_momentum / (1 - product * next_momentum));
  const float scale = (float)(1 / sqrt(bias_correction(spec->betas[1], update->step)));
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
      mean.next[i] = next_mean;
      square.next[i] = next_square;
      out[i] = decay_weight(decay, weights[i]) -
               (grad_rate * grad + mean_rate * next_mean) / (sqrtf(next_square) * scale + eps);
    }
  }
}

const struct optimizer_def optimizer_nadam = {
    .name = "nadam", .options = nadam_options, .slots = nadam_slots, .update = nadam_update};

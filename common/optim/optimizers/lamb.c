/* LAMB (You et al., 2020, algorithm 2): Adam's step with decay, as long as the tensor's weights allow.
   Without a bound on the norm of the weights; a tensor whose weights or step are 0 takes the step as it is.
 */
#include "common/optim/optimizers/by_tensor.h"

static const struct option_rule lamb_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-6},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "bias_correction", .number = 1},
    {0},
};

static uint32_t lamb_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return 2; /* the gradient's mean and the mean of its square */
}

/* The moments of this step; the step itself is drafted in `out`. */
VECTOR_VARIANTS static uint32_t lamb_sums(const Weir__OptimizerSpec *spec,
                                          const struct optimizer_update *update, uint32_t phase,
                                          double *sums) {
  const float share1 = (float)(1 - spec->betas[0]), share2 = (float)(1 - spec->betas[1]);
  const float beta2 = (float)spec->betas[1], eps = (float)spec->eps, decay = (float)spec->weight_decay;
  const double lack1 = spec->bias_correction ? bias_correction(spec->betas[0], update->step) : 1;
  const double lack2 = spec->bias_correction ? bias_correction(spec->betas[1], update->step) : 1;
  const float scale1 = (float)(1 / lack1), scale2 = (float)(1 / sqrt(lack2));
  const float *mean = update_slot(update, 0).now, *square = update_slot(update, 1).now;
  const uint32_t elems = update->elems;
  const float *weights = update->weights, *grads = update->grad;
  float *out = update->out;
  (void)phase;
#pragma GCC ivdep
  for (uint32_t i = 0; i < elems; i++) {
    float grad = grads[i];
    float next_mean = moved_towards(mean[i], grad, share1);
    float next_square = beta2 * square[i] + share2 * grad * grad;
    out[i] = next_mean * scale1 / (sqrtf(next_square) * scale2 + eps) + decay * weights[i];
  }
  sums[0] = vector_sum_squares(weights, elems);
  sums[1] = vector_sum_squares(out, elems);
  return 2;
}

VECTOR_VARIANTS static void lamb_update(const Weir__OptimizerSpec *spec,
                                        const struct optimizer_update *update) {
  const float share1 = (float)(1 - spec->betas[0]), share2 = (float)(1 - spec->betas[1]);
  const float beta2 = (float)spec->betas[1];
  const double *totals = update->totals[0];
  const bool is_scaled = totals[0] > 0 && totals[1] > 0;
  const float rate = (float)(update->lr * (is_scaled ? sqrt(totals[0] / totals[1]) : 1));
  const uint32_t elems = update->elems;
  const float *weights = update->weights, *grads = update->grad;
  float *out = update->out;
  struct slot mean = update_slot(update, 0), square = update_slot(update, 1);
#pragma GCC ivdep
  for (uint32_t i = 0; i < elems; i++) {
    float grad = grads[i];
    mean.next[i] = moved_towards(mean.now[i], grad, share1);
    square.next[i] = beta2 * square.now[i] + share2 * grad * grad;
    out[i] = weights[i] - rate * out[i];
  }
}

const struct optimizer_def optimizer_lamb = {.name = "lamb",
                                             .options = lamb_options,
                                             .slots = lamb_slots,
                                             .update = lamb_update,
                                             .n_phases = 1,
                                             .windows = two_norms,
                                             .sums = lamb_sums};

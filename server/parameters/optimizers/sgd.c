/* Stochastic gradient descent with momentum, as torch.optim.SGD (Sutskever et al., 2013, in PyTorch's form).
 */
#include "server/parameters/optimizer.h"

static const struct option_rule sgd_options[] = {
    {.name = "momentum", .range = OPTION_FROM_0_BELOW_1},
    {.name = "dampening", .range = OPTION_FROM_0_TO_1},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "nesterov"},
    {0},
};

static int sgd_check(const Weir__OptimizerSpec *spec, const char *path, struct err *err) {
  if (spec->nesterov && !(spec->momentum > 0))
    return err_set(err, ERR_INVALID, "%s.nesterov: needs a momentum above 0", path);
  if (spec->nesterov && spec->dampening != 0)
    return err_set(err, ERR_INVALID, "%s.nesterov: needs a dampening of 0, not %g", path, spec->dampening);
  return 0;
}

static uint32_t sgd_slots(const Weir__OptimizerSpec *spec) {
  return spec->momentum != 0 ? 1 : 0;
}

static void sgd_update_plain(const struct optimizer_update *update, float decay) {
  const float lr = (float)update->lr;
  for (uint32_t i = 0; i < update->elems; i++) {
    float grad = update->grad[i] + decay * update->weights[i];
    update->out[i] = update->weights[i] - lr * grad;
  }
}

/* The momentum buffer begins as the first gradient, undampened. */
static void sgd_update_first(const Weir__OptimizerSpec *spec, const struct optimizer_update *update,
                             float decay) {
  const float lr = (float)update->lr, momentum = (float)spec->momentum;
  float *restrict velocity = update->next_slots;
  for (uint32_t i = 0; i < update->elems; i++) {
    float grad = update->grad[i] + decay * update->weights[i];
    velocity[i] = grad;
    update->out[i] = update->weights[i] - lr * (spec->nesterov ? grad + momentum * grad : grad);
  }
}

static void sgd_update_momentum(const Weir__OptimizerSpec *spec, const struct optimizer_update *update,
                                float decay) {
  const float lr = (float)update->lr, momentum = (float)spec->momentum;
  const float share = (float)(1 - spec->dampening);
  const float *velocity = update->slots;
  float *next = update->next_slots;
#pragma GCC ivdep
  for (uint32_t i = 0; i < update->elems; i++) {
    float grad = update->grad[i] + decay * update->weights[i];
    float moved = momentum * velocity[i] + share * grad;
    next[i] = moved;
    update->out[i] = update->weights[i] - lr * (spec->nesterov ? grad + momentum * moved : moved);
  }
}

static void sgd_update(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  const float decay = (float)spec->weight_decay;
  if (sgd_slots(spec) == 0)
    sgd_update_plain(update, decay);
  else if (update->step == 0)
    sgd_update_first(spec, update, decay);
  else
    sgd_update_momentum(spec, update, decay);
}

const struct optimizer_def optimizer_sgd = {
    .name = "sgd", .options = sgd_options, .check = sgd_check, .slots = sgd_slots, .update = sgd_update};

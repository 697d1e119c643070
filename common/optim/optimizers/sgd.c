/* Stochastic gradient descent with momentum, as torch.optim.SGD (Sutskever et al., 2013, in PyTorch's form).
 */
#include "common/optim/optimizers/elementwise.h"

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

static void sgd_update_plain(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  const float lr = (float)update->lr;
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++)
      out[i] = weights[i] - lr * decay_grad(decay, grads[i], weights[i]);
  }
}

/* The velocity begins as the first gradient, undampened. Inlined with constants, so that each kind has a loop
   without branches. */
static inline __attribute__((always_inline)) void sgd_loop(const Weir__OptimizerSpec *spec,
                                                           const struct optimizer_update *update,
                                                           bool is_first, bool is_nesterov) {
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  const float lr = (float)update->lr, momentum = (float)spec->momentum;
  const float share = (float)(1 - spec->dampening);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot velocity = tile_slot(&tile, 0);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next = is_first ? grad : momentum * velocity.now[i] + share * grad;
      velocity.next[i] = next;
      out[i] = weights[i] - lr * (is_nesterov ? grad + momentum * next : next);
    }
  }
}

VECTOR_VARIANTS static void sgd_update(const Weir__OptimizerSpec *spec,
                                       const struct optimizer_update *update) {
  bool is_first = update->step == 0;
  if (sgd_slots(spec) == 0)
    sgd_update_plain(spec, update);
  else if (spec->nesterov && is_first)
    sgd_loop(spec, update, true, true);
  else if (spec->nesterov)
    sgd_loop(spec, update, false, true);
  else if (is_first)
    sgd_loop(spec, update, true, false);
  else
    sgd_loop(spec, update, false, false);
}

const struct optimizer_def optimizer_sgd = {
    .name = "sgd", .options = sgd_options, .check = sgd_check, .slots = sgd_slots, .update = sgd_update};

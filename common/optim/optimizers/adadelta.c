/* Adadelta (Zeiler, 2012, algorithm 1), as torch.optim.Adadelta. */
#include "common/optim/optimizers/elementwise.h"

enum { SLOTS = 2 };

static const struct option_rule adadelta_options[] = {
    {.name = "rho", .range = OPTION_FROM_0_TO_1, .number = 0.9},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-6},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {0},
};

static uint32_t adadelta_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return SLOTS;
}

VECTOR_VARIANTS static void adadelta_update(const Weir__OptimizerSpec *spec,
                                            const struct optimizer_update *update) {
  const float lr = (float)update->lr, eps = (float)spec->eps;
  const float rho = (float)spec->rho, share = (float)(1 - spec->rho);
  const struct weight_decay decay = weight_decay_of(spec, update->lr, false);
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot square = tile_slot(&tile, 0), moves = tile_slot(&tile, 1);
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_square = rho * square.now[i] + share * grad * grad;
      float move = sqrtf(moves.now[i] + eps) / sqrtf(next_square + eps) * grad;
      square.next[i] = next_square;
      moves.next[i] = rho * moves.now[i] + share * move * move;
      out[i] = weights[i] - lr * move;
    }
  }
}

const struct optimizer_def optimizer_adadelta = {
    .name = "adadelta", .options = adadelta_options, .slots = adadelta_slots, .update = adadelta_update};

/* Adam (Kingma and Ba, 2015, algorithm 1; AMSGrad: Reddi et al., 2018), as torch.optim.Adam. */
#include "common/optim/optimizers/adam.h"

#include "common/optim/optimizers/elementwise.h"

static const struct option_rule adam_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "amsgrad"},
    {.name = "decoupled_weight_decay"},
    {0},
};

static uint32_t adam_slots(const Weir__OptimizerSpec *spec) {
  return spec->amsgrad ? AMSGRAD_SLOTS : ADAM_SLOTS;
}

/* Inlined with a constant, so that each kind has a loop without branches. */
static inline __attribute__((always_inline)) void adam_loop(const Weir__OptimizerSpec *spec,
                                                            const struct optimizer_update *update,
                                                            struct weight_decay decay, bool is_amsgrad) {
  const float rate = (float)(update->lr / bias_correction(spec->betas[0], update->step));
  const float scale = (float)(1 / sqrt(bias_correction(spec->betas[1], update->step)));
  const float share1 = (float)(1 - spec->betas[0]), share2 = (float)(1 - spec->betas[1]);
  const float beta2 = (float)spec->betas[1], eps = (float)spec->eps;
  _Alignas(TILE_ALIGN) float out[TILE_ELEMS];
  EACH_TILE(tile, update, out) {
    const uint32_t elems = tile.elems;
    const float *weights = tile.weights, *grads = tile.grads;
    struct slot mean = tile_slot(&tile, 0), square = tile_slot(&tile, 1);
    struct slot largest = is_amsgrad ? tile_slot(&tile, 2) : square;
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++) {
      float grad = decay_grad(decay, grads[i], weights[i]);
      float next_mean = moved_towards(mean.now[i], grad, share1);
      float next_square = beta2 * square.now[i] + share2 * grad * grad, above = next_square;
      if (is_amsgrad) {
        above = largest.now[i] > next_square ? largest.now[i] : next_square;
        largest.next[i] = above;
      }
      mean.next[i] = next_mean;
      square.next[i] = next_square;
      out[i] = decay_weight(decay, weights[i]) - rate * next_mean / (sqrtf(above) * scale + eps);
    }
  }
}

VECTOR_VARIANTS void adam_step(const Weir__OptimizerSpec *spec, const struct optimizer_update *update,
                               bool is_amsgrad, bool is_decoupled) {
  struct weight_decay decay = weight_decay_of(spec, update->lr, is_decoupled);
  if (is_amsgrad)
    adam_loop(spec, update, decay, true);
  else
    adam_loop(spec, update, decay, false);
}

static void adam_update(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  adam_step(spec, update, spec->amsgrad, spec->decoupled_weight_decay);
}

const struct optimizer_def optimizer_adam = {
    .name = "adam", .options = adam_options, .slots = adam_slots, .update = adam_update};

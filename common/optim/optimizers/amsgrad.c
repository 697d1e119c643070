/* Adam that never forgets its largest second moment (Reddi et al., 2018), as torch.optim.Adam with amsgrad.
 */
#include "common/optim/optimizers/adam.h"

static const struct option_rule amsgrad_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {.name = "decoupled_weight_decay"},
    {0},
};

static uint32_t amsgrad_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return AMSGRAD_SLOTS;
}

static void amsgrad_update(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  adam_step(spec, update, true, spec->decoupled_weight_decay);
}

const struct optimizer_def optimizer_amsgrad = {
    .name = "amsgrad", .options = amsgrad_options, .slots = amsgrad_slots, .update = amsgrad_update};

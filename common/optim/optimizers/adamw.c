/* Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as torch.optim.AdamW. */
#include "common/optim/optimizers/adam.h"

static const struct option_rule adamw_options[] = {
    {.name = "betas", .range = OPTION_FROM_0_BELOW_1, .list = {0.9, 0.999}, .list_length = 2},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 1e-8},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0, .number = 1e-2},
    {.name = "amsgrad"},
    {0},
};

static uint32_t adamw_slots(const Weir__OptimizerSpec *spec) {
  return spec->amsgrad ? AMSGRAD_SLOTS : ADAM_SLOTS;
}

static void adamw_update(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  adam_step(spec, update, spec->amsgrad, true);
}

const struct optimizer_def optimizer_adamw = {
    .name = "adamw", .options = adamw_options, .slots = adamw_slots, .update = adamw_update};

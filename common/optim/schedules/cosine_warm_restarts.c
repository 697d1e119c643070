/* Half cosines from the base rate to eta_min, the first of T_0 steps and each T_mult times as long as the one
   before, as torch.optim.lr_scheduler.CosineAnnealingWarmRestarts (SGDR, Loshchilov and Hutter, 2017). */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule cosine_warm_restarts_options[] = {
    {.name = "T_0", .range = OPTION_AT_LEAST_1, .absence = OPTION_REQUIRED},
    {.name = "T_mult", .range = OPTION_AT_LEAST_1, .number = 1},
    {.name = "eta_min", .range = OPTION_AT_LEAST_0},
    {0},
};

/* Periods that grow are at most 30 before the billionth step, and neither factor is above a billion. */
static double cosine_warm_restarts_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step,
                                        uint64_t steps) {
  uint64_t done = step - spec->warmup_steps, period = spec->t_0;
  (void)steps;
  if (spec->t_mult == 1)
    done %= period;
  for (; done >= period; period *= spec->t_mult)
    done -= period;
  return spec->eta_min + (lr - spec->eta_min) * (0.5 * (1 + cos(M_PI * (double)done / (double)period)));
}

const struct schedule_def schedule_cosine_warm_restarts = {.name = "cosine_warm_restarts",
                                                           .options = cosine_warm_restarts_options,
                                                           .rate = cosine_warm_restarts_rate};

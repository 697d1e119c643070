/* Half a cosine from the base rate to eta_min at the run's end, as torch.optim.lr_scheduler.CosineAnnealingLR
   (Loshchilov and Hutter, 2017, equation 5). */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule cosine_options[] = {
    {.name = "eta_min", .range = OPTION_AT_LEAST_0},
    {0},
};

static double cosine_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  double done = (double)(step - spec->warmup_steps) / (double)(steps - spec->warmup_steps);
  return spec->eta_min + (lr - spec->eta_min) * (0.5 * (1 + cos(M_PI * done)));
}

const struct schedule_def schedule_cosine = {
    .name = "cosine", .options = cosine_options, .rate = cosine_rate};

/* A learning rate that is multiplied by gamma after each step, as torch.optim.lr_scheduler.ExponentialLR. */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule exponential_options[] = {
    {.name = "gamma", .range = OPTION_ABOVE_0, .absence = OPTION_REQUIRED},
    {0},
};

static double exponential_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  (void)steps;
  return lr * pow(spec->gamma, (double)(step - spec->warmup_steps));
}

const struct schedule_def schedule_exponential = {
    .name = "exponential", .options = exponential_options, .rate = exponential_rate};

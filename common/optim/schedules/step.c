/* A learning rate that is multiplied by gamma every step_size steps of the run, as
   torch.optim.lr_scheduler.StepLR. */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule step_options[] = {
    {.name = "step_size", .range = OPTION_AT_LEAST_1, .absence = OPTION_REQUIRED},
    {.name = "gamma", .range = OPTION_ABOVE_0, .number = 0.1},
    {0},
};

static double step_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  (void)steps;
  return lr * pow(spec->gamma, (double)(step / spec->step_size));
}

const struct schedule_def schedule_step = {.name = "step", .options = step_options, .rate = step_rate};

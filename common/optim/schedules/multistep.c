/* A learning rate that is multiplied by gamma at each of the milestones, which are steps of the run, as
   torch.optim.lr_scheduler.MultiStepLR. */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule multistep_options[] = {
    {.name = "milestones", .range = OPTION_AT_LEAST_1, .absence = OPTION_REQUIRED},
    {.name = "gamma", .range = OPTION_ABOVE_0, .number = 0.1},
    {0},
};

static int multistep_check(const Weir__ScheduleSpec *spec, struct err *err) {
  for (size_t i = 1; i < spec->n_milestones; i++)
    if (spec->milestones[i] <= spec->milestones[i - 1])
      return err_set(err, ERR_INVALID, "train.schedule.milestones: must increase, but %llu comes after %llu",
                     (unsigned long long)spec->milestones[i], (unsigned long long)spec->milestones[i - 1]);
  return 0;
}

static double multistep_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  size_t passed = 0;
  (void)steps;
  while (passed < spec->n_milestones && spec->milestones[passed] <= step)
    passed++;
  return lr * pow(spec->gamma, (double)passed);
}

const struct schedule_def schedule_multistep = {
    .name = "multistep", .options = multistep_options, .check = multistep_check, .rate = multistep_rate};

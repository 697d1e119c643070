/* A learning rate that is multiplied by gamma every step_size steps, as torch.optim.lr_scheduler.StepLR. */
#include <math.h>

#include "server/parameters/schedule.h"

static int step_check(const Weir__ScheduleSpec *spec, struct err *err) {
  if (!spec->has_step_size || spec->step_size == 0)
    return err_set(err, ERR_INVALID, "train.schedule.step_size: the schedule 'step' needs it, above 0");
  if (!(spec->gamma > 0) || !isfinite(spec->gamma))
    return err_set(err, ERR_INVALID, "train.schedule.gamma: must be above 0 and finite");
  return 0;
}

static double step_factor(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps) {
  (void)steps;
  return pow(spec->gamma, (double)(step / spec->step_size));
}

const struct schedule_def schedule_step = {.name = "step", .check = step_check, .factor = step_factor};

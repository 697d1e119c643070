/* A learning rate that stays. */
#include "server/parameters/schedule.h"

static double constant_factor(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps) {
  (void)spec, (void)step, (void)steps;
  return 1;
}

const struct schedule_def schedule_constant = {
    .name = "constant", .check = schedule_refuse_step_options, .factor = constant_factor};

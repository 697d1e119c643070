/* The base rate, always. */
#include "common/optim/schedule.h"

static double constant_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  (void)spec;
  (void)step;
  (void)steps;
  return lr;
}

const struct schedule_def schedule_constant = {.name = "constant", .rate = constant_rate};

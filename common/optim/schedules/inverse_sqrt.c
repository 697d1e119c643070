/* A rate that falls with the square root of the step, from the base rate, which the warm-up reaches: Noam's
   curve scaled so that lr is its peak. */
#include <math.h>

#include "common/optim/schedule.h"

static double inverse_sqrt_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  double warmup = spec->warmup_steps > 0 ? (double)spec->warmup_steps : 1;
  (void)steps;
  return lr * sqrt(warmup / (double)(step + 1));
}

const struct schedule_def schedule_inverse_sqrt = {.name = "inverse_sqrt", .rate = inverse_sqrt_rate};

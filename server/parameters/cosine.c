/* Half a cosine from the base rate to 0 at the run's end (Loshchilov and Hutter, 2017, equation 5). */
#include <math.h>

#include "server/parameters/schedule.h"

static double cosine_factor(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps) {
  double done = (double)(step - spec->warmup_steps) / (double)(steps - spec->warmup_steps);
  return 0.5 * (1 + cos(M_PI * done));
}

const struct schedule_def schedule_cosine = {
    .name = "cosine", .check = schedule_refuse_step_options, .factor = cosine_factor};

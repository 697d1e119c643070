/* A power of a straight line from the base rate to 0 within total_iters steps, as
   torch.optim.lr_scheduler.PolynomialLR. Without total_iters: to the end of the run. */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule polynomial_options[] = {
    {.name = "total_iters", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {.name = "power", .range = OPTION_AT_LEAST_0, .number = 1},
    {0},
};

static double polynomial_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  uint64_t total = spec->has_total_iters ? spec->total_iters : steps - spec->warmup_steps;
  uint64_t done = step - spec->warmup_steps;
  double share = done < total ? (double)done / (double)total : 1;
  return lr * pow(1 - share, spec->power);
}

const struct schedule_def schedule_polynomial = {
    .name = "polynomial", .options = polynomial_options, .rate = polynomial_rate};

/* A straight line from start_factor to end_factor of the base rate within total_iters steps, and on at the
   end, as torch.optim.lr_scheduler.LinearLR. Without total_iters: to the end of the run. */
#include "common/optim/schedule.h"

static const struct option_rule linear_options[] = {
    {.name = "start_factor", .range = OPTION_ABOVE_0_TO_1, .number = 1.0 / 3},
    {.name = "end_factor", .range = OPTION_FROM_0_TO_1, .number = 1},
    {.name = "total_iters", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {0},
};

static double linear_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  uint64_t total = spec->has_total_iters ? spec->total_iters : steps - spec->warmup_steps;
  uint64_t done = step - spec->warmup_steps;
  double share = done < total ? (double)done / (double)total : 1;
  return lr * (spec->start_factor + (spec->end_factor - spec->start_factor) * share);
}

const struct schedule_def schedule_linear = {
    .name = "linear", .options = linear_options, .rate = linear_rate};

/* The rate of the first Transformer (Vaswani et al., 2017, equation 3), times lr: it climbs in a straight
   line for warmup_steps and falls with the square root of the step. */
#include <math.h>

#include "common/optim/schedule.h"

static const struct option_rule noam_options[] = {
    {.name = "d_model", .range = OPTION_AT_LEAST_1, .number = 1},
    {0},
};

static int noam_check(const Weir__ScheduleSpec *spec, struct err *err) {
  if (spec->warmup_steps == 0)
    return err_set(err, ERR_INVALID, "train.schedule.warmup_steps: 'noam' needs it, above 0");
  return 0;
}

static double noam_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  double at = (double)(step + 1), warmup = (double)spec->warmup_steps;
  (void)steps;
  return lr / sqrt((double)spec->d_model) * fmin(1 / sqrt(at), at / (warmup * sqrt(warmup)));
}

const struct schedule_def schedule_noam = {
    .name = "noam", .options = noam_options, .check = noam_check, .rate = noam_rate, .warms_up = true};

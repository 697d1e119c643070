/* Schedules of the learning rate: rows of schedule.def. The rate is a closed form of the step, in f64, so
   that a run resumed anywhere goes on with the same numbers. */
#ifndef WEIR_SERVER_PARAMETERS_SCHEDULE_H
#define WEIR_SERVER_PARAMETERS_SCHEDULE_H

#include <stdint.h>

#include "common/err.h"
#include "spec.pb-c.h"

struct schedule_def {
  const char *name;
  /* The row's own options. Errors: INVALID naming the key by its path. */
  int (*check)(const Weir__ScheduleSpec *spec, struct err *err);
  /* What the base rate is multiplied with at step warmup_steps <= step < steps. */
  double (*factor)(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps);
};

const struct schedule_def *schedule_find(const char *name); /* NULL if unknown */

/* The name is known and the row accepts its options. Errors: INVALID, for an unknown name with those known.
 */
int schedule_check(const Weir__ScheduleSpec *spec, struct err *err);

/* The learning rate of step (0 <= step < steps): lr * (step + 1) / warmup_steps below warmup_steps, then the
   row's. The spec has passed schedule_check. */
double schedule_lr(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps);

/* For rows without the options of `step`: INVALID if one of them is given. */
int schedule_refuse_step_options(const Weir__ScheduleSpec *spec, struct err *err);

#endif

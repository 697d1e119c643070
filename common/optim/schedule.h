/* Schedules of the learning rate: rows of schedule.def. The rate is a closed form of the step, in f64, so
   that a run resumed anywhere goes on with the same numbers. */
#ifndef WEIR_COMMON_OPTIM_SCHEDULE_H
#define WEIR_COMMON_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "common/agree/options.h"
#include "spec.pb-c.h"

/* What rows are given is settled: every option of the row is there, but those that it leaves open. */
struct schedule_def {
  const char *name;
  const struct option_rule *options; /* besides warmup_steps */
  /* What ranges do not say; NULL: nothing. Errors: INVALID naming the key by its path. */
  int (*check)(const Weir__ScheduleSpec *spec, struct err *err);
  /* The rate at step warmup_steps <= step < steps, of the base rate lr. */
  double (*rate)(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps);
  /* The momentum at a step, where the spec says cycle_momentum; NULL in rows without that option. */
  double (*momentum)(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps);
  bool warms_up; /* the row's rate says what the warm-up is: it is asked from step 0 on */
};

const struct schedule_def *schedule_at(int index); /* in the table's order; NULL past the last */

/* Checks a spec on the heap against its row and gives it the row's defaults. Errors: INVALID, naming the key
   by its path; for an unknown name with those known. */
int schedule_settle(Weir__ScheduleSpec *spec, struct err *err);

/* The learning rate of step (0 <= step < steps): lr * (step + 1) / warmup_steps below warmup_steps, then the
   row's. The spec is settled. */
double schedule_lr(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps);

/* A settled optimizer's options at one step. */
struct step_options {
  Weir__OptimizerSpec spec; /* borrows what it does not change */
  double betas[2];
};

/* Whether the optimizer has a momentum in each of its groups, where the schedule moves it. Both are settled.
   Errors: INVALID. */
int schedule_check_optimizer(const Weir__ScheduleSpec *spec, const Weir__OptimizerSpec *optimizer,
                             struct err *err);

/* The optimizer's options (or a group's) at a step: as they are, or in *own with the schedule's momentum,
   which is PyTorch's momentum, of those with betas the first. */
const Weir__OptimizerSpec *schedule_options(const Weir__ScheduleSpec *spec,
                                            const Weir__OptimizerSpec *options, uint64_t step, uint64_t steps,
                                            struct step_options *own);

#endif

/* Larger budgets of sweeps. */
#include <math.h>
#include <string.h>

#include "common/sweep/scheduler.h"

static int check_kind(bool is_wanted, bool has, const char *key, struct err *err) {
  return !is_wanted || has
             ? 0
             : err_set(err, ERR_INVALID, "budget.%s: the sweep has no such bound, so there is none to raise",
                       key);
}

int sweep_check_extension(const struct sweep *sweep, const Weir__SweepBudget *budget, struct err *err) {
  const Weir__SweepBudget *has = sweep->spec->budget;
  if (!budget->has_trials && !budget->has_steps && !budget->has_seconds)
    return err_set(err, ERR_INVALID, "budget: give trials, steps or seconds");
  if (check_kind(budget->has_trials, has->has_trials, "trials", err) ||
      check_kind(budget->has_steps, has->has_steps, "steps", err) ||
      check_kind(budget->has_seconds, has->has_seconds, "seconds", err))
    return err->code;
  if (budget->has_trials && scheduler_find(sweep->spec)->begins_whole)
    return err_set(err, ERR_INVALID, "budget.trials: with schedule '%s' all trials begin together",
                   sweep->spec->schedule->name);
  if (budget->has_trials && (budget->trials <= has->trials || budget->trials > SWEEP_TRIALS_MAX))
    return err_set(err, ERR_INVALID, "budget.trials: %u is not above the %u of before, up to %d",
                   budget->trials, has->trials, SWEEP_TRIALS_MAX);
  if (budget->has_steps && budget->steps <= has->steps)
    return err_set(err, ERR_INVALID, "budget.steps: %llu is not above the %llu of before",
                   (unsigned long long)budget->steps, (unsigned long long)has->steps);
  if (budget->has_seconds && !(budget->seconds > 0 && isfinite(budget->seconds)))
    return err_set(err, ERR_INVALID, "budget.seconds: it must be above 0");
  return 0;
}

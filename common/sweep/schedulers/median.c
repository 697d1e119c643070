/* The median rule (Golovin et al., Google Vizier, 2017, section 3.2.2, by the newest values in place of
   running averages): a trial does not go on from a rung where its value is worse than the median of the
   others' there. The first trials always go on, so that there is something to compare with. */
#include "common/sweep/scheduler.h"

#include <stdlib.h>

#include "common/base/memory.h"

enum { STARTUP_TRIALS = 5 }; /* as Optuna's n_startup_trials */

/* Whether more than half of the others that have come there are better. */
static bool is_below_median(const struct sweep *sweep, const struct sweep_trial *trial, int rung) {
  int better = 0, others = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *other = &sweep->trials[i];
    if (other == trial || rung >= other->n_results)
      continue;
    others++;
    better +=
        scheduler_is_better(other, trial, rung) && other->results[rung].value != trial->results[rung].value;
  }
  return others >= STARTUP_TRIALS && 2 * better > others;
}

static int median_stop(const struct sweep *sweep) {
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->state == SWEEP_TRIAL_WAITING && is_below_median(sweep, trial, trial->n_results - 1))
      return i;
  }
  return -1;
}

static int median_promote(const struct sweep *sweep) {
  for (int i = 0; i < sweep->n_trials; i++)
    if (sweep->trials[i].state == SWEEP_TRIAL_WAITING)
      return i;
  return -1;
}

const struct scheduler_def scheduler_median = {
    .name = "median", .wants_rungs = true, .stop = median_stop, .promote = median_promote};

/* Hyperband (Li et al., 2018, algorithm 1): brackets of successive halving, from many trials that are
   compared at every rung to few that are compared at the last one alone; then the same again. A bracket does
   not wait for the one before: its trials begin in slots that are free. */
#include <math.h>

#include "common/sweep/bracket.h"
#include "common/sweep/scheduler.h"

/* So many that, with 1/eta of them going on, about as many steps are made in each bracket. */
static int count_trials(const struct sweep *sweep, int begin) {
  int left = sweep->n_rungs - begin; /* rungs from `begin` on */
  double n = sweep->n_rungs;
  for (int i = 1; i < left && n / left < SWEEP_TRIALS_MAX; i++)
    n *= sweep->spec->schedule->eta;
  n = ceil(n / left);
  return n < SWEEP_TRIALS_MAX ? (int)n : SWEEP_TRIALS_MAX;
}

static int find(const struct sweep *sweep, bool goes_on) {
  const Weir__SweepBudget *budget = sweep->spec->budget;
  int most = budget->has_trials ? (int)budget->trials : SWEEP_TRIALS_MAX, found = -1;
  struct bracket bracket = {.n = 0};
  for (int i = 0; bracket.first < sweep->n_trials && bracket.first < most && found < 0; i++) {
    bracket.begin = i % sweep->n_rungs;
    bracket.n = count_trials(sweep, bracket.begin);
    if (bracket.n > most - bracket.first) /* the last one */
      bracket.n = most - bracket.first;
    found = bracket_find(sweep, &bracket, goes_on);
    bracket.first += bracket.n;
  }
  return found;
}

static int hyperband_stop(const struct sweep *sweep) {
  return find(sweep, false);
}

static int hyperband_promote(const struct sweep *sweep) {
  return find(sweep, true);
}

const struct scheduler_def scheduler_hyperband = {
    .name = "hyperband", .wants_rungs = true, .stop = hyperband_stop, .promote = hyperband_promote};

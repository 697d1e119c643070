/* Successive halving (Jamieson and Talwalkar, 2016): budget.trials begin; when all that are to come to a rung
   are there, the best 1/eta of them go on, and at least one does. */
#include "common/sweep/scheduler.h"

#include <stdlib.h>

#include "common/base/memory.h"

static int halving_check(const Weir__SweepSpec *spec, struct err *err) {
  return spec->budget->has_trials
             ? 0
             : err_set(err, ERR_INVALID, "budget.trials: halving begins with so many trials: give it");
}

/* Those that go on from a rung are chosen when none is missing there. */
static int halving_promote(const struct sweep *sweep) {
  int *ranked = mem_new((size_t)sweep->n_trials * sizeof *ranked + 1);
  int members = (int)sweep->spec->budget->trials, found = -1;
  for (int rung = 0; rung < sweep->n_rungs - 1 && found < 0; rung++) {
    if (scheduler_rank(sweep, rung, ranked) < members)
      break;
    members /= (int)sweep->spec->schedule->eta;
    members = members ? members : 1;
    for (int i = 0; i < members && found < 0; i++)
      if (scheduler_waits(&sweep->trials[ranked[i]], rung))
        found = ranked[i];
  }
  free(ranked);
  return found;
}

const struct scheduler_def scheduler_halving = {
    .name = "halving", .wants_rungs = true, .check = halving_check, .promote = halving_promote};

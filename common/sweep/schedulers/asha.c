/* Asynchronous successive halving (Li et al., 2020, algorithm 2): whenever a slot is free, a trial that is
   among the best 1/eta of its rung goes on from there, the highest rung first; else a new one begins. A trial
   that waits costs nothing, and may still be promoted when others have come to its rung. */
#include "common/sweep/scheduler.h"

#include <stdlib.h>

#include "common/base/memory.h"

static int asha_promote(const struct sweep *sweep) {
  int *ranked = mem_new((size_t)sweep->n_trials * sizeof *ranked + 1);
  int found = -1;
  for (int rung = sweep->n_rungs - 2; rung >= 0 && found < 0; rung--) {
    int n = scheduler_rank(sweep, rung, ranked) / (int)sweep->spec->schedule->eta;
    for (int i = 0; i < n && found < 0; i++)
      if (scheduler_waits(&sweep->trials[ranked[i]], rung))
        found = ranked[i];
  }
  free(ranked);
  return found;
}

const struct scheduler_def scheduler_asha = {.name = "asha", .wants_rungs = true, .promote = asha_promote};

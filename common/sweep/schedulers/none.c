/* Every trial goes on to its end; rungs, if there are any, only tell how it does. */
#include "common/sweep/scheduler.h"

static int none_promote(const struct sweep *sweep) {
  for (int i = 0; i < sweep->n_trials; i++)
    if (sweep->trials[i].state == SWEEP_TRIAL_WAITING)
      return i;
  return -1;
}

const struct scheduler_def scheduler_none = {.name = "none", .promote = none_promote, .takes_several = true};

/* Which keys of a sweep's space matter. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_IMPORTANCE_H
#define WEIR_CLIENT_SWEEPS_SWEEP_IMPORTANCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/sweeps/importance.h"
#include "common/base/err.h"
#include "common/sweep/space.h"
#include "training.pb-c.h"

struct sweep_importance {
  const Weir__SweepInfo *info; /* the caller's */
  struct space *space;
  struct importance *dimensions; /* [space->n] */
  uint64_t steps;                /* at which trials are compared; 0: at their end */
  int n_trials;
};

/* Looks at the results at the step `steps`; 0: at the last rung that at least half of the trials with results
   have come to. Errors: INVALID for a step that is no rung, and for too few results. Released with
   sweep_importance_fini, also after an error. */
int sweep_importance_init(struct sweep_importance *importance, const Weir__SweepInfo *info, uint64_t steps,
                          struct err *err);
void sweep_importance_fini(struct sweep_importance *importance);

/* A row for each dimension, the most important first; what it does on its own, and where it is best. */
void sweep_importance_print(FILE *file, const struct sweep_importance *importance, bool is_unicode);
void sweep_importance_print_json(FILE *file, const struct sweep_importance *importance);

#endif

/* Schedulers of sweeps: which trials go on from a rung, and which do not. Rows of scheduler.def. All of them
   are pure functions of the sweep's state, which its log gives. */
#ifndef WEIR_COMMON_SWEEP_SCHEDULER_H
#define WEIR_COMMON_SWEEP_SCHEDULER_H

#include <stdbool.h>

#include "common/sweep/sweep.h"

/* That one trial is replaced by a fork of another. */
struct exploit {
  int parent, replaced; /* numbers */
  int rung;             /* at which the parent waits */
};

struct scheduler_def {
  const char *name;
  bool wants_rungs;
  bool takes_several; /* objectives: it compares no trials */
  bool begins_whole;  /* it compares budget.trials of trials, no more */
  /* What names and ranges do not say of the spec; NULL: nothing. Errors: INVALID naming the key. */
  int (*check)(const Weir__SweepSpec *spec, struct err *err);
  /* The number of a trial that waits at a rung and is not to go on; -1: there is none. NULL: never one. */
  int (*stop)(const struct sweep *sweep);
  /* The number of a trial that waits at a rung and is to go on in a slot that is free; -1: there is none, so
     that a new one may begin. */
  int (*promote)(const struct sweep *sweep);
  /* Asked before `promote`: a trial that is to be replaced in a slot that is free. False: there is none.
     NULL: never one; such a row has no options of perturbation. */
  bool (*exploit)(const struct sweep *sweep, struct exploit *out);
};

const struct scheduler_def *scheduler_at(int index); /* in the table's order; NULL past the last */

/* Checks schedule against its row. Errors: INVALID, naming the key. */
int scheduler_check(const Weir__SweepSpec *spec, struct err *err);
/* Of a spec that was checked. */
const struct scheduler_def *scheduler_find(const Weir__SweepSpec *spec);

/* For the rows. */

/* Whether trial a's result at a rung is better than b's: the lower value, a failure behind every value, then
   the one of the lower number. Both have come to the rung, or have failed. */
bool scheduler_is_better(const struct sweep_trial *a, const struct sweep_trial *b, int rung);
/* Sorts the numbers of n trials that have come to the rung, or have failed at it, the best first. */
void scheduler_sort(const struct sweep *sweep, int rung, int *trials, int n);
/* The numbers of all trials that have come to a rung, those among them that failed at it, the best first.
   out: [sweep->n_trials]. Returns how many. */
int scheduler_rank(const struct sweep *sweep, int rung, int *out);
/* It waits at this very rung, and may go on. */
bool scheduler_waits(const struct sweep_trial *trial, int rung);

#endif

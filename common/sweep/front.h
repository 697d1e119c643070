/* Pareto fronts: which of several points no other one dominates. A point dominates another if it is worse in
   no objective and better in one. */
#ifndef WEIR_COMMON_SWEEP_FRONT_H
#define WEIR_COMMON_SWEEP_FRONT_H

#include "common/sweep/sweep.h"

/* Writes for each of n points the number of its front: 0 where no point dominates it, 1 where only points of
   front 0 do, and so on (non-dominated sorting, Deb et al., 2002). values: f64[n, k], finite, lower is
   better; ranks: [n]. Returns how many pairs of points it compared, beside those of sorting: at most n log n
   of two objectives, and n^2 / 2 of more. */
uint64_t front_ranks(const double *values, int n, int k, int *ranks);

/* Writes one number for each point, lower is better: first by front, within a front by crowding distance (Deb
   et al., 2002), the less crowded first. out: f64[n]. */
void front_order(const double *values, int n, int k, double *out);

/* For the fold of a sweep's log (sweep_log.c): the sweep's front, after the trial has a new result, or has
   failed. Of one objective there is none. A result is compared with the front's trials, and a failure of one
   of those with all trials. */
void front_take_result(struct sweep *sweep, const struct sweep_trial *trial);
void front_take_failure(struct sweep *sweep, const struct sweep_trial *trial);

/* The observations of a sweep of several objectives have for each rung, in place of a value, the trial's
   place in front_order among all that have come there. results: [sweep->n_trials * sweep->n_rungs], of trial
   t from t * n_rungs on. */
void front_results(const struct sweep *sweep, struct sweep_result *results);

#endif

/* What a searcher makes of the trials before its own. */
#ifndef WEIR_COMMON_SWEEP_HISTORY_H
#define WEIR_COMMON_SWEEP_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory.h"
#include "common/sweep/searcher.h"

/* Indices of observations. */
struct history {
  /* Those that say something, the best first: what was trained for more steps comes before what was stopped
     earlier, as schedulers go on with the better ones; then by value, then by number. Failed ones are last.
   */
  int *ranked;
  int n_ranked;
  int n_failed; /* of them */
  int *pending; /* without any result yet, in order */
  int n_pending;
};

/* Lives as long as the arena. */
struct history history_rank(const struct search *search, struct arena *arena);

/* Worse than any result. */
bool history_failed(const struct sweep_observation *observation);

/* Its result after so many steps; NULL: it has none there, or has failed. */
const struct sweep_result *history_result(const struct sweep_observation *observation, uint64_t steps);

/* The rung by which a model judges trials: the one of the most steps that `least` have come to. Of several
   rungs it is never the first: the scheduler chooses by that one already, and a model of it would choose by
   the same early results once more. False: too few have come to any. */
bool history_model_rung(const struct search *search, int least, uint64_t *steps);

/* Observations that have come to the rung: the best there first. */
void history_sort(const struct search *search, uint64_t steps, int *observations, int n);

enum rung_kind {
  RUNG_OWN,     /* the value is the trial's own */
  RUNG_FAILED,  /* the worst of all own ones */
  RUNG_STOPPED, /* it ended before: the worst of all own ones */
  RUNG_PENDING, /* it may still get there: the mean of all own ones (constant liar) */
};

struct rung_entry {
  int observation;
  enum rung_kind kind;
  double value;
};

/* All observations, in order, by their values at one number of steps. */
struct rung {
  uint64_t steps;
  struct rung_entry *entries; /* none where no observation has a value */
  int n;
  int n_own;
};

/* The rung of the most steps at which at least `least` observations have a value of their own; where there is
   none, the one with the most of them (of several the highest). Lives as long as the arena. */
struct rung history_rung(const struct search *search, int least, struct arena *arena);

#endif

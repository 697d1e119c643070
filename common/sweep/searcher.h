/* Searchers: rows of searcher.def. A searcher suggests the point of the next trial from the results of those
   before it. It keeps nothing between calls and draws random numbers from counters of (seed, trial), so what
   it suggests is a pure function of the sweep's history, on any machine of one fingerprint
   (common/agree/libm.h). */
#ifndef WEIR_COMMON_SWEEP_SEARCHER_H
#define WEIR_COMMON_SWEEP_SEARCHER_H

#include <stdint.h>

#include "common/agree/options.h"
#include "common/sweep/space.h"

enum sweep_state {
  SWEEP_PENDING, /* undecided: it runs, waits or is held; it may have results */
  SWEEP_DONE,    /* it gets no more results: it has finished or was stopped */
  SWEEP_FAILED,  /* it diverged or its input is bad: worse than any result */
};

/* What a trial was compared by. */
struct sweep_result {
  uint64_t steps; /* that it had been trained for */
  double value;   /* lower is better; finite */
};

/* A trial as a searcher sees it. */
struct sweep_observation {
  const double *point; /* double[n], of space_position: as space_holds says */
  enum sweep_state state;
  const struct sweep_result *results; /* steps ascend */
  int n_results;
};

/* The question for the point of one trial. All is borrowed. */
struct search {
  const struct space *space;
  const Weir__SweepSearch *options; /* settled */
  uint32_t trial;                   /* its number, from 0 */
  /* Of other sweeps' trials, if any, then of trials 0, 1, ... trial - 1, in this order. */
  const struct sweep_observation *observations;
  int n_observations;
  uint64_t first_rung; /* the steps of the first of several rungs; 0: trials are compared at one alone */
};

/* What rows are given is settled: every option of the row is there. */
struct searcher_def {
  const char *name;
  const struct option_rule *options; /* besides seed; NULL: none */
  bool learns;                       /* from any trials, those of other sweeps, too */
  bool takes_several; /* objectives: it does without values, or with a place among them (front.h) */
  /* What ranges do not say, and spaces that the row cannot search; NULL: nothing. Errors: INVALID, naming the
     key or the dimension by its path. */
  int (*check)(const struct space *space, const Weir__SweepSearch *options, struct err *err);
  /* Writes a value for every dimension; search_suggest takes away what is not active. Pure. Errors: NOT_FOUND
     when the space has no more points; no other. */
  int (*suggest)(const struct search *search, double *point, struct err *err);
};

const struct searcher_def *searcher_find(const char *name); /* NULL if unknown */
const struct searcher_def *searcher_at(int index);          /* in the table's order; NULL past the last */

/* Checks options on the heap against their row and the space, and gives them the row's defaults; again
   changes nothing. Errors: INVALID, "search.KEY: ..." or "space.PATH: ...", for an unknown name with those
   known. */
int searcher_settle(Weir__SweepSearch *options, const struct space *space, struct err *err);

/* Writes the point of trial search->trial, double[n], as space_holds says. Any thread; at 500 observations of
   ten dimensions some tens of milliseconds at most. Errors: NOT_FOUND when the space has no more points
   (grid); no other. */
int search_suggest(const struct search *search, double *point, struct err *err);

#endif

/* The live view of a sweep: from the coordinator's answers to text. Pure. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_VIEW_H
#define WEIR_CLIENT_SWEEPS_SWEEP_VIEW_H

#include <stdio.h>

#include "client/terminal/live.h"
#include "training.pb-c.h"

enum { SWEEP_TRACE_MAX = 16 };

/* The losses of a trial's run since it is watched. When there are too many, every other one is dropped. */
struct sweep_trace {
  float losses[SWEEP_TRACE_MAX];
  int n;
  uint64_t step, stride; /* step of the last one; steps between two of them */
};

struct sweep_view {
  struct sweep_trace *traces; /* [n_traces] by trial */
  int n_traces;
  double first_seconds; /* when the sweep was first watched; below 0: it was not yet */
  double first_done;    /* sweep_done then */
  int waits;            /* updates in a row in which the sweep waited for the store */
  const char *trouble;  /* why there is no news; NULL: there is */
};

void sweep_view_init(struct sweep_view *view);
void sweep_view_fini(struct sweep_view *view);

/* Takes in the newest answer. */
void sweep_view_update(struct sweep_view *view, const Weir__SweepInfo *info, double now_seconds);

/* Prints the lines of the view. info: whole, as given to sweep_view_update. Where the terminal has fewer
   lines, running trials are left out. */
void sweep_view_print(FILE *file, const struct sweep_view *view, const Weir__SweepInfo *info,
                      double now_seconds, const struct live *live);

/* How much of the sweep is computed, and how much there will be, in steps; in trials where there are no
   rungs. NaN where that depends on results. Trials that a scheduler may still stop count as if they went on.
 */
double sweep_done(const Weir__SweepInfo *info);
double sweep_total(const Weir__SweepInfo *info);

/* A bar for each value, the lowest one for the lowest value; returns text. */
const char *sweep_sparkline(const float *values, int n, bool is_unicode, char text[SWEEP_TRACE_MAX * 3 + 1]);

#endif

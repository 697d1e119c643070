/* A sweep that goes on, as a terminal shows it: pure, from what the coordinator says to text. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_VIEW_H
#define WEIR_CLIENT_SWEEPS_SWEEP_VIEW_H

#include <stdio.h>

#include "client/terminal/live.h"
#include "training.pb-c.h"

enum { SWEEP_TRACE_MAX = 16 };

/* The losses of a trial's run since it is watched. Where there would be too many, every other one goes. */
struct sweep_trace {
  float losses[SWEEP_TRACE_MAX];
  int n;
  uint64_t step, stride; /* of the last one; between two of them */
};

struct sweep_view {
  struct sweep_trace *traces; /* [n_traces] by trial */
  int n_traces;
  double first_seconds, first_done; /* when it was watched first; seconds below 0: it was not */
  int waits;                        /* updates one after the other in which the store was waited for */
  const char *trouble;              /* why there is no news; NULL: there is */
};

void sweep_view_init(struct sweep_view *view);
void sweep_view_fini(struct sweep_view *view);

/* Takes in what was answered now. */
void sweep_view_update(struct sweep_view *view, const Weir__SweepInfo *info, double now_seconds);

/* The lines of the view. info: whole, as view_update was given it. Where there are fewer lines, trials that
   run are left out. */
void sweep_view_print(FILE *file, const struct sweep_view *view, const Weir__SweepInfo *info,
                      double now_seconds, const struct live *live);

/* How much of the sweep is computed, in steps (where there are no rungs: in trials), and how much there will
   be; NaN where that follows from results. Trials that a scheduler may still stop count as if they went on.
 */
double sweep_done(const Weir__SweepInfo *info);
double sweep_total(const Weir__SweepInfo *info);

/* A bar for each value, the least the lowest; returns text. */
const char *sweep_sparkline(const float *values, int n, bool is_unicode, char text[SWEEP_TRACE_MAX * 3 + 1]);

#endif

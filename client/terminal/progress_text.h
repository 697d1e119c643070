/* How the progress of a run looks: pure functions from numbers to text. */
#ifndef WEIR_CLIENT_TERMINAL_PROGRESS_TEXT_H
#define WEIR_CLIENT_TERMINAL_PROGRESS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/terminal/live.h"
#include "training.pb-c.h"

enum { PROGRESS_LINE_MAX = 2048, PROGRESS_BAR_MAX = 1024 };

/* What is known of a run. */
struct progress_view {
  char run[64];
  Weir__RunState state;
  char message[256]; /* why it waits; may be empty */
  uint64_t step;     /* the newest complete version */
  uint64_t steps;    /* 0: not yet known */
  uint64_t epoch;    /* of the newest step, from 0 */
  double epochs;     /* 0: not known */
  double loss;       /* of the newest step; NaN: none */
  double accuracy;   /* of the last evaluation; NaN: none */
  unsigned workers;
  double elapsed_seconds; /* since the display began */
  double trained_seconds; /* of all steps so far */
  /* Sums over the recent past, older steps weighing less: their ratios are the present speed. */
  double recent_steps, recent_samples, recent_seconds;
};

/* Of a run before its events: its name, and how long it is, where that is known. */
void progress_view_init(struct progress_view *view, const Weir__RunInfo *info);
/* Takes in an event. */
void progress_view_update(struct progress_view *view, const Weir__RunEvent *event);
double progress_samples_per_second(const struct progress_view *view); /* NaN before the first step */
double progress_seconds_left(const struct progress_view *view);       /* NaN when not known */

/* The bar alone: exactly `width` columns (3 to 200). fraction is clamped to [0, 1]. */
void progress_bar(double fraction, int width, const struct live_style *style, char bar[PROGRESS_BAR_MAX]);

/* The two lines of the live display, without line ends, each below style->width columns: name, bar, percent,
   step and epoch; loss, accuracy, time left, samples/s, workers. What does not fit is left out. Before the
   first step the first says what the run waits for; later, when it is held up, the second does. */
void progress_live_lines(const struct progress_view *view, const struct live_style *style,
                         char first[PROGRESS_LINE_MAX], char second[PROGRESS_LINE_MAX]);

/* One plain line of the same, for logs. */
void progress_plain_line(const struct progress_view *view, char line[PROGRESS_LINE_MAX]);

/* A line that says in which state the run is, and why. */
void progress_state_line(const struct progress_view *view, char line[PROGRESS_LINE_MAX]);

/* One line of an evaluation, which stays above the live display. */
void progress_eval_line(const struct progress_view *view, const Weir__EvalEvent *eval,
                        char line[PROGRESS_LINE_MAX]);

#endif

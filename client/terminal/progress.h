/* The progress of a run, shown while it goes on: two live lines on a terminal, plain lines elsewhere. */
#ifndef WEIR_CLIENT_TERMINAL_PROGRESS_H
#define WEIR_CLIENT_TERMINAL_PROGRESS_H

#include <stdio.h>

#include "training.pb-c.h"

struct progress;

/* file: stdout or stderr; nothing else may write to it until progress_stop. On a terminal a thread redraws
   the two lines at most ten times a second, as wide as the terminal is then; otherwise a line is written at
   most every five seconds, and one for each evaluation and change of state. info: the run at present. Events
   that tell again of steps before that get no line. */
struct progress *progress_start(FILE *file, const Weir__RunInfo *info);
void progress_event(struct progress *progress, const Weir__RunEvent *event);
/* A line that stays. */
void progress_note(struct progress *progress, const char *line);
/* Removes the live lines. NULL is ignored. */
void progress_stop(struct progress *progress);

#endif

/* Following a run to its end: its events go to the progress display, the metrics files and a sink. */
#ifndef WEIR_CLIENT_CLUSTER_FOLLOW_H
#define WEIR_CLIENT_CLUSTER_FOLLOW_H

#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/files/event_filter.h"
#include "client/files/event_sink.h"
#include "client/files/metrics.h"
#include "training.pb-c.h"

enum { FOLLOW_METRICS_MAX = 2 };

/* How far a run was followed. Zeroed: not at all. */
struct follow_mark {
  uint64_t next; /* number of the next event */
  struct event_filter filter;
};

struct follow_options {
  struct connection *connection;
  const char *run;                             /* an id or a unique prefix */
  FILE *file;                                  /* where progress is shown; NULL: nowhere */
  struct metrics *metrics[FOLLOW_METRICS_MAX]; /* NULL: none */
  struct event_sink *sink;                     /* gets every event; NULL: none */
  struct follow_mark *mark;                    /* where to go on, and kept up to date; NULL: from the first */
  bool ends_when_paused;                       /* PAUSED is an end too */
  int deadline_ms;                             /* 0: none */
  int all_workers;                             /* there will be no others; 0: there may */
};

/* How a run ended. */
struct follow_result {
  Weir__RunInfo *info;       /* its last state: DONE, STOPPED, FAILED or CANCELLED; PAUSED if that was one */
  double samples_per_second; /* of the whole run; NaN when it has no result */
};

/* Blocks until the run has ended. A broken connection is made again, for a minute; events that come again
   after a coordinator's restart are dropped. The result is released with follow_result_fini, also after an
   error. Errors: CANCELLED on a stop (see client/cluster/stop.h), UNAVAILABLE when the coordinator is gone,
   TIMEOUT after deadline_ms, INVALID when all_workers have refused to take part, NOT_FOUND for an unknown
   run, IO when a metrics file could not be written (the run was followed to its end all the same), those of
   the sink. */
int follow(const struct follow_options *options, struct follow_result *result, struct err *err);
void follow_result_fini(struct follow_result *result); /* safe on a zeroed one */

/* Hands the sink the events that the run (an id or a unique prefix) has had so far, from number *next on, and
   sets *next to that of the first one to come. Errors: those of the coordinator and of the sink; CANCELLED on
   a stop. */
int follow_past(struct connection *connection, const char *run, uint64_t *next, struct event_sink *sink,
                struct err *err);

/* Whether a run in that state has ended with weights that are kept: DONE or STOPPED. */
bool follow_has_result(Weir__RunState state);

/* What the end of a run means for the process: EXIT_DONE for one with a result. For others prints the line
   that says so and returns EXIT_RUN_FAILED, or EXIT_BAD_INPUT when the run's input was at fault. */
int follow_exit(const struct follow_result *result);

/* The whole of a command that follows: progress and the summary go to `file`, metrics (NULL: none) to the
   file of that name. A Ctrl-C says that the run goes on. Returns the exit status. */
int follow_command(struct connection *connection, const char *run, FILE *file, const char *metrics);

/* The closing summary of a run that has a result, as lines "name  value". */
void follow_summary(FILE *file, const struct follow_result *result);

#endif

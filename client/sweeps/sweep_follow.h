/* Following a sweep to its end, and the files that it leaves. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_FOLLOW_H
#define WEIR_CLIENT_SWEEPS_SWEEP_FOLLOW_H

#include <stdio.h>

#include "client/cluster/connect.h"
#include "client/sweeps/sweep_submission.h"
#include "training.pb-c.h"

/* *info is freed with message_free. Errors: NOT_FOUND, and those of the coordinator. */
int sweep_ask(struct connection *connection, const char *sweep, bool has_records, Weir__SweepInfo **info,
              struct err *err);

/* Blocks until the sweep has ended. Where `file` (stdout or stderr) is a terminal, a view of the sweep is
   redrawn there, and is gone at the end; elsewhere each new result is a line. A coordinator that is away is
   waited for, for a minute. *info: as of sweep_ask, the newest, also after an error; NULL: none came. Errors:
   CANCELLED on a stop (client/cluster/stop.h); those of sweep_ask. */
int sweep_follow(struct connection *connection, const char *sweep, FILE *file, Weir__SweepInfo **info,
                 struct err *err);

/* Writes trials.jsonl into the folder: a line a trial, without clock times. Errors: IO. */
int sweep_write_trials(const Weir__SweepInfo *info, const char *folder, struct err *err);

/* Writes best.onnx and best.yaml into the folder, where a trial has a result. best.yaml is the run spec of
   the submission with the trial's values, and names the model by its whole path. Errors: those of
   download_export; IO. */
int sweep_write_best(struct connection *connection, const Weir__SweepInfo *info,
                     const struct sweep_submission *submission, const char *folder, struct err *err);

#endif

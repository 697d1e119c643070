/* The runs of a sweep's trials, as TensorBoard reads them. */
#include "client/sweeps/sweep_logs.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/follow.h"
#include "client/cluster/stop.h"
#include "client/files/tensorboard.h"
#include "client/sweeps/sweep_follow.h"
#include "client/sweeps/sweep_table.h"
#include "common/base/memory.h"
#include "common/base/message.h"

enum { LOOK_MS = 1000, AWAY_MS = 60000 };

/* A run of a trial. */
struct log {
  char *run;
  struct tensorboard *tensorboard; /* NULL: it has ended, and all of it is written */
  uint64_t next;                   /* number of the next event */
};

struct logs {
  struct connection *connection;
  const char *sweep, *folder;
  struct log *items;
  int count, capacity;
};

static bool is_over(Weir__RunState state) {
  return state == WEIR__RUN_STATE__DONE || state == WEIR__RUN_STATE__STOPPED ||
         state == WEIR__RUN_STATE__FAILED || state == WEIR__RUN_STATE__CANCELLED;
}

/* NULL: there is none, of a trial that began since. */
static struct log *log_find(struct logs *logs, const Weir__RunInfo *run, const Weir__SweepInfo *info,
                            struct err *err) {
  const Weir__SweepTrial *trial = sweep_find_trial(info, run->trial);
  struct log *log;
  for (int i = 0; i < logs->count; i++)
    if (strcmp(logs->items[i].run, run->run) == 0)
      return &logs->items[i];
  if (!trial)
    return NULL;
  array_reserve((void **)&logs->items, &logs->capacity, logs->count, sizeof *logs->items);
  log = &logs->items[logs->count];
  *log = (struct log){0};
  if (tensorboard_open(logs->folder, run, trial, &log->tensorboard, err))
    return NULL;
  log->run = mem_strdup(run->run);
  logs->count++;
  return log;
}

static int log_write(struct logs *logs, struct log *log, Weir__RunState state, struct err *err) {
  if (!log->tensorboard ||
      follow_past(logs->connection, log->run, &log->next, tensorboard_sink(log->tensorboard), err) ||
      tensorboard_end(log->tensorboard, state, err) || !is_over(state))
    return err->code;
  tensorboard_close(log->tensorboard);
  log->tensorboard = NULL;
  return 0;
}

/* What there is. *has_ended: the sweep had, before. */
static int logs_write(struct logs *logs, bool *has_ended, struct err *err) {
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListRunsReply *reply = NULL;
  Weir__SweepInfo *info = NULL;
  if (sweep_ask(logs->connection, logs->sweep, false, &info, err) == 0 &&
      connection_call(logs->connection, RPC_LIST_RUNS, &request, (void **)&reply, err) == 0) {
    *has_ended = *info->end;
    for (size_t i = 0; i < reply->n_runs && !err->code; i++)
      if (strcmp(reply->runs[i]->sweep, info->sweep) == 0) {
        struct log *log = log_find(logs, reply->runs[i], info, err);
        if (log)
          log_write(logs, log, reply->runs[i]->state, err);
      }
  }
  message_free(reply);
  message_free(info);
  return err->code;
}

int sweep_logs(struct connection *connection, const char *sweep, const char *folder, bool does_follow,
               struct err *err) {
  struct logs logs = {.connection = connection, .sweep = sweep, .folder = folder};
  bool has_ended = false;
  int away_ms = 0;
  do {
    *err = ERR_NONE;
    away_ms = logs_write(&logs, &has_ended, err) ? away_ms + LOOK_MS : 0;
  } while (does_follow && !has_ended && (!err->code || (err_is_retryable(err->code) && away_ms <= AWAY_MS)) &&
           !stop_wait(LOOK_MS));
  if (!err->code && does_follow && !has_ended)
    err_set(err, ERR_CANCELLED, "interrupted");
  for (int i = 0; i < logs.count; i++) {
    tensorboard_close(logs.items[i].tensorboard);
    free(logs.items[i].run);
  }
  free(logs.items);
  return err->code;
}

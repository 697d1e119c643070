/* The coordinator's decisions: a state machine without threads, clock or I/O, so that a simulator can drive
   it. The shell (service.h) turns what happens into events, passes them to coordinator_step one at a time,
   and carries out the actions that come back, in order. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_H
#define WEIR_SERVER_COORDINATOR_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "common/err.h"
#include "common/memory.h"
#include "store.pb-c.h"
#include "training.pb-c.h"

struct coordinator;

struct coordinator_options {
  uint64_t epoch;            /* in every order */
  uint64_t missing_after_ms; /* a member not heard of for longer is gone */
};

struct coordinator *coordinator_new(const struct coordinator_options *options);
void coordinator_free(struct coordinator *coordinator); /* NULL is ignored */

/* A run that was checked and may be queued. Everything is copied. */
struct run_submission {
  const char *id;            /* not in use */
  const Weir__RunSpec *spec; /* passed spec_check */
  uint64_t model_bytes;
  const char *model_sha256;
  uint64_t parameters;         /* trained elements */
  const uint32_t *block_elems; /* [n_blocks] */
  uint32_t n_blocks;
  int64_t submitted_unix_ms;
};

/* What the shell found out about a run's last checkpoint. */
struct checkpoint_result {
  const char *run;
  const char *weights_sha256; /* when it was committed */
  const char *error;          /* NULL, or why not */
};

enum coordinator_event_kind {
  EVENT_MEMBER_JOINED,
  EVENT_MEMBER_MESSAGE,
  EVENT_MEMBER_LEFT,
  EVENT_RUN_SUBMITTED,
  EVENT_RUN_CANCELLED,
  EVENT_CHECKPOINT,
  EVENT_TICK, /* every 100 ms or so: a long gap says that we did not run */
};

struct coordinator_event {
  enum coordinator_event_kind kind;
  uint64_t member; /* MEMBER_*: the shell's key of its stream, never used twice; unknown ones are ignored */
  union {
    const Weir__Hello *hello;           /* MEMBER_JOINED */
    const Weir__MemberMessage *message; /* MEMBER_MESSAGE; any content */
    const char *reason;                 /* MEMBER_LEFT */
    const struct run_submission *submission;
    const char *run; /* RUN_CANCELLED: a whole id */
    struct checkpoint_result checkpoint;
  };
};

enum coordinator_action_kind {
  ACTION_ORDER,   /* send `order` to `member` */
  ACTION_CLOSE,   /* end the stream of `member` for `reason`; it has left, no MEMBER_LEFT is needed */
  ACTION_PUBLISH, /* `run` has new events (coordinator_run_event) */
  ACTION_COMMIT,  /* compute weights_sha256, complete `manifest` and store it; then EVENT_CHECKPOINT */
  ACTION_RECORD,  /* `run` is over: store `info` as its result, release its model */
};

struct coordinator_action {
  enum coordinator_action_kind kind;
  uint64_t member;
  const char *run;
  enum err_code code; /* with `reason` */
  const char *reason;
  const Weir__Order *order;
  const Weir__Manifest *manifest;
  const Weir__RunInfo *info;
};

/* Filled by a step. What the items point to belongs to the arena or the coordinator and holds until the next
   step. Zeroed before first use. */
struct coordinator_actions {
  struct coordinator_action *items;
  int count, capacity;
  struct arena arena;
};

void coordinator_actions_fini(struct coordinator_actions *actions);

/* Takes one event. now_ms is monotonic. The actions of the step before are dropped first. */
void coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, uint64_t now_ms,
                      struct coordinator_actions *actions);

/* ---- questions; strings in answers belong to the coordinator (or the arena) until the next step ---- */

/* The whole id of the run that is named by an id or a unique prefix. Errors: NOT_FOUND; INVALID when several
   match (they are named). */
int coordinator_find_run(const struct coordinator *coordinator, const char *prefix, const char **id,
                         struct err *err);

/* False if there is no such run (whole id). */
bool coordinator_run_info(const struct coordinator *coordinator, const char *id, uint64_t now_ms,
                          Weir__RunInfo *info);
bool coordinator_run_is_over(const struct coordinator *coordinator, const char *id); /* or forgotten */
/* The key of the run's model in the store, and its spec; NULL if there is no such run. */
const char *coordinator_run_model(const struct coordinator *coordinator, const char *id);
Weir__RunSpec *coordinator_run_spec(const struct coordinator *coordinator, const char *id);

/* Room for one event of a run. */
struct run_event_view {
  Weir__RunEvent event;
  union {
    Weir__StepEvent step;
    Weir__EvalEvent eval;
    Weir__DoneEvent done;
  } body;
};

/* Event `number` of the run, or the oldest that is kept if that is dropped (its number tells). False if it
   has not happened yet. */
bool coordinator_run_event(const struct coordinator *coordinator, const char *id, uint64_t number,
                           struct run_event_view *view);

int coordinator_live_runs(const struct coordinator *coordinator); /* not over */

/* Lists in the order of submission or joining, built in the arena. */
void coordinator_list_runs(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                           Weir__ListRunsReply *reply);
void coordinator_list_workers(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                              Weir__ListWorkersReply *reply);
void coordinator_list_servers(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                              Weir__ListServersReply *reply);

#endif

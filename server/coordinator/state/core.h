/* The coordinator's decisions: a state machine without threads, clock or I/O, so that a simulator can drive
   it. The shell (server/coordinator/shell/service.h) turns what happens into events, passes them to
   coordinator_step one at a time, and carries out the actions that come back, in order. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_CORE_H
#define WEIR_SERVER_COORDINATOR_STATE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "server/coordinator/events/event_log.h"
#include "store.pb-c.h"
#include "training.pb-c.h"

struct coordinator;

struct coordinator_options {
  uint64_t term;             /* in every order; views and events are numbered from term << 32 on */
  uint64_t missing_after_ms; /* a member not heard of for longer is gone */
  uint64_t server_grace_ms;  /* how long a run waits for a lost server before it goes on without it: since the
                                loss or, within a minute of it, since a worker reached it */
  uint64_t follow_ms; /* a worker that follows a run for longer without catching up is named; 0: workers
                         compute as soon as they have loaded */
  const char *store_identity; /* that servers' stores must have; outlives the coordinator; NULL: any */
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
  const char *weights_sha256; /* of a run that only evaluates: of the model's weights; else NULL */
};

/* What became of an ACTION_COMMIT. */
struct checkpoint_result {
  const char *run;
  uint64_t incarnation, step;       /* the manifest's */
  const Weir__CheckpointInfo *info; /* when it was committed; weights_sha256 with the last version alone */
  const char *error;                /* NULL, or why not */
};

/* What the store knew of a run when the coordinator began: given before any member joins. */
struct restored_run {
  const Weir__RunRecord *record; /* its list of checkpoints is that of the manifests that are there */
  Weir__RunEvent *const *events; /* by number */
  size_t n_events;
  int64_t now_unix_ms; /* the wall clock now, for the times in answers and records; 0: not known */
};

enum coordinator_event_kind {
  EVENT_MEMBER_JOINED,
  EVENT_MEMBER_MESSAGE,
  EVENT_MEMBER_LEFT,
  EVENT_RUN_SUBMITTED,
  EVENT_RUN_CANCELLED,
  EVENT_RUN_PAUSED,
  EVENT_RUN_RESUMED,
  EVENT_RUN_RESTORED,
  EVENT_RUN_FORGOTTEN, /* a run that is over was deleted from the store */
  EVENT_RUN_SAVED,     /* an ACTION_SAVE that was waited for is durable */
  EVENT_CHECKPOINT,
  EVENT_CHECKPOINT_DROPPED, /* an ACTION_DROP was carried out, or will be by a later sweep */
  EVENT_STORE,              /* the store is in trouble, or well again */
  EVENT_STORE_EMPTIED, /* the store has lost what it had: no checkpoint is left, every run is to be saved */
  EVENT_MEMBERS_RESTORED, /* what the store knew of members, before any joins */
  EVENT_WORKER_READMITTED,
  EVENT_MODEL_LOST, /* neither the store nor the coordinator has the model of a run that is not over */
  EVENT_TICK,       /* every 100 ms or so: a long gap says that we did not run */
};

struct coordinator_event {
  enum coordinator_event_kind kind;
  uint64_t member; /* MEMBER_*: the shell's key of its stream, never used twice; unknown ones are ignored */
  union {
    const Weir__Hello *hello;           /* MEMBER_JOINED */
    const Weir__MemberMessage *message; /* MEMBER_MESSAGE; any content */
    const char *reason;                 /* MEMBER_LEFT */
    const struct run_submission *submission;
    const char *run; /* RUN_CANCELLED, RUN_PAUSED, RUN_FORGOTTEN: a whole id */
    struct {
      const char *run;
      uint64_t step; /* a committed checkpoint's, or 0 */
    } resumed;
    struct restored_run restored;
    struct {
      const char *run;
      uint64_t incarnation;
    } saved;
    struct checkpoint_result checkpoint;
    struct {
      const char *run;
      uint64_t step;
    } dropped;
    struct {
      const char *run, *reason;
    } model_lost;
    const Weir__Members *members; /* MEMBERS_RESTORED */
    const char *readmitted;       /* WORKER_READMITTED: as of coordinator_find_quarantine */
    const char *store_message;    /* STORE: empty when it is well */
  };
};

enum coordinator_action_kind {
  ACTION_ORDER,   /* send `order` to `member` */
  ACTION_CLOSE,   /* end the stream of `member` for `reason`; it has left, no MEMBER_LEFT is needed */
  ACTION_PUBLISH, /* `run` has new events (coordinator_run_event) */
  ACTION_COMMIT,  /* check that `manifest` is whole, compute weights_sha256 if `is_last`, store it with guards
                     of term and incarnation; then EVENT_CHECKPOINT, in any case */
  ACTION_DROP,    /* delete the checkpoint at `step` of `run` and its blocks; then EVENT_CHECKPOINT_DROPPED */
  ACTION_SAVE,    /* store `record` and its incarnation; the newest of a run is enough. If `is_awaited`, then
                     EVENT_RUN_SAVED, however long the store is away */
  ACTION_RELEASE, /* `run` is over: its model need not be kept in memory */
  ACTION_MEMBERS, /* the members have changed: store `members` */
  ACTION_DOUBT,   /* a member obeys a higher term: ask the store whether we still lead */
  ACTION_DEPOSED, /* a member obeys a higher term, which the store has lost: step down. Nothing follows */
};

struct coordinator_action {
  enum coordinator_action_kind kind;
  uint64_t member;
  const char *run;
  enum err_code code; /* with `reason` */
  const char *reason;
  const Weir__Order *order;
  const Weir__Manifest *manifest;
  const Weir__RunRecord *record;
  const Weir__Members *members;
  uint64_t step;
  uint64_t term; /* of DEPOSED: the higher one */
  bool is_last, is_awaited;
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

/* Questions. Strings in answers belong to the coordinator (or the arena) until the next step. */

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

/* The first event of the run with that number or a higher one. False if there is none yet. */
bool coordinator_run_event(const struct coordinator *coordinator, const char *id, uint64_t number,
                           struct run_event_view *view);

/* A device, as its workers' Hello names it. */
struct device_name {
  const char *host, *device;
};

/* The device in quarantine that is named by HOST/DEVICE or by a worker's id. Errors: NOT_FOUND. */
int coordinator_find_quarantine(const struct coordinator *coordinator, const char *name,
                                struct device_name *device, struct err *err);

int coordinator_live_runs(const struct coordinator *coordinator); /* not over */

/* The committed checkpoints of a run, by step, built in the arena. False if there is no such run. */
bool coordinator_list_checkpoints(const struct coordinator *coordinator, const char *id, struct arena *arena,
                                  Weir__ListCheckpointsReply *reply);

/* Lists in the order of submission or joining, built in the arena. */
void coordinator_list_runs(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                           Weir__ListRunsReply *reply);
/* Workers, then the devices in quarantine that have none. */
void coordinator_list_workers(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                              Weir__ListWorkersReply *reply);
/* The workers on one device; where there is none, a row of the device. */
void coordinator_list_device(const struct coordinator *coordinator, const struct device_name *device,
                             uint64_t now_ms, struct arena *arena, Weir__ListWorkersReply *reply);
void coordinator_list_servers(const struct coordinator *coordinator, uint64_t now_ms, struct arena *arena,
                              Weir__ListServersReply *reply);

#endif

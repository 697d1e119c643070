/* The coordinator's state, for the files of its core alone: core.c takes events, runs.c moves runs from state
   to state, settle.c gives them members and views, progress.c follows them to the end, orders.c writes what
   members are told, info.c answers questions. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_H
#define WEIR_SERVER_COORDINATOR_STATE_H

#include "common/plan.h"
#include "server/coordinator/assign.h"
#include "server/coordinator/core.h"
#include "server/coordinator/event_log.h"
#include "server/coordinator/rate.h"

enum worker_state { WORKER_IDLE, WORKER_LOADING, WORKER_READY, WORKER_REFUSED, WORKER_DRAINING };

struct run;

/* A server or a worker. */
struct member {
  uint64_t key; /* the shell's */
  Weir__Role role;
  char *id; /* "server-1", "worker-1" */
  char *host, *address, *device, *fingerprint;
  uint32_t pid, executors;
  uint64_t joined_ms, heard_ms;

  enum worker_state state; /* workers: what follows */
  struct run *run;         /* loading, ready or draining; else NULL */
  char *message;           /* why it was refused */
  struct range microbatches, eval_chunks;
  const struct run *reserved_for; /* while coordinator_settle runs: the queued run that waits with it */
};

/* A server's part in a run. */
struct run_server {
  struct member *member;
  uint32_t blocks;
  uint64_t bytes; /* of master weights */
  bool is_loaded, is_complete, is_written;
};

/* What the first loaded worker found: all others must find the same. */
struct reference {
  char *worker; /* "worker-1 (HOST)"; NULL until there is one */
  char *fingerprint, *dataset_sha256, *probe_sha256;
};

struct written_block {
  char sha256[65]; /* empty until written */
  uint64_t bytes;
};

struct run {
  char *id;
  Weir__RunSpec *spec;
  uint64_t model_bytes;
  char *model_sha256;
  uint64_t parameters;
  uint32_t *block_elems;
  uint32_t n_blocks;

  Weir__RunState state;
  char *message;
  bool is_bad_input;
  uint64_t incarnation;

  struct reference reference;
  struct plan plan; /* steps 0 until the first worker has loaded */
  struct run_server *servers;
  int n_servers;     /* 0 until they are told to load */
  uint64_t *refused; /* keys of workers that are not asked again */
  int n_refused, refused_capacity;
  char *refusal; /* the newest one; NULL before */

  uint64_t view;
  bool is_view_due, is_info_due;
  uint64_t step; /* the newest complete version */
  double loss, accuracy, eval_loss;
  uint64_t eval_step; /* the newest evaluated version */
  struct rate rate;
  struct written_block *written; /* [n_blocks] */
  char weights_sha256[65];

  int64_t submitted_unix_ms;
  uint64_t submitted_ms, started_ms, trained_ms, finished_ms; /* 0 before */
  struct event_log events;
};

struct coordinator {
  struct coordinator_options options;
  struct member **members; /* in joining order */
  int n_members, members_capacity;
  struct run **runs; /* in the order of submission */
  int n_runs, runs_capacity;
  uint32_t servers_seen, workers_seen;

  uint64_t now_ms;    /* of the step in progress */
  uint64_t ticked_ms; /* of the last tick */
  struct coordinator_actions *actions;
};

/* core.c */
struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind);

/* runs.c */
struct run *coordinator_run(const struct coordinator *coordinator, const char *id); /* NULL: none */
struct run_server *coordinator_run_server(const struct run *run, const struct member *member);
bool coordinator_is_over(const struct run *run);
/* The one place where a run's state changes: checks, logs, and lets go of the members when it is over. */
void coordinator_run_set_state(struct coordinator *coordinator, struct run *run, Weir__RunState state);
void coordinator_run_set_message(struct run *run, const char *message);
void coordinator_run_fail(struct coordinator *coordinator, struct run *run, bool is_bad_input,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
void coordinator_run_submitted(struct coordinator *coordinator, const struct run_submission *submission);
void coordinator_run_free(struct run *run);
void coordinator_loaded(struct coordinator *coordinator, struct member *member,
                        const Weir__RunLoaded *loaded);
void coordinator_refused(struct coordinator *coordinator, struct member *member,
                         const Weir__RunRefused *refused);

/* settle.c */
void coordinator_worker_set_state(struct member *worker, enum worker_state state);
const char *coordinator_worker_state_name(enum worker_state state);
int coordinator_count_workers(const struct coordinator *coordinator, const struct run *run,
                              enum worker_state state);
/* Takes the worker from its run, which goes on without it. */
void coordinator_worker_leave_run(struct member *worker, enum worker_state state);
/* After every event: gives free workers and servers to runs, moves runs on, sends the views that are due. */
void coordinator_settle(struct coordinator *coordinator);

/* progress.c */
void coordinator_step_report(struct coordinator *coordinator, struct member *member,
                             const Weir__StepReport *report);
void coordinator_eval_report(struct coordinator *coordinator, struct member *member,
                             const Weir__EvalReport *report);
void coordinator_complete(struct coordinator *coordinator, struct member *member,
                          const Weir__RunComplete *complete);
void coordinator_written(struct coordinator *coordinator, struct member *member,
                         const Weir__BlocksWritten *written);
void coordinator_checkpoint(struct coordinator *coordinator, const struct checkpoint_result *result);
/* Begins FINISHING once every server is complete and the last evaluation is known. */
void coordinator_finish_when_complete(struct coordinator *coordinator, struct run *run);

/* orders.c */
void coordinator_order_welcome(struct coordinator *coordinator, const struct member *member);
void coordinator_order_load(struct coordinator *coordinator, const struct run *run,
                            const struct member *member);
void coordinator_order_views(struct coordinator *coordinator, const struct run *run);
void coordinator_order_write(struct coordinator *coordinator, const struct run *run,
                             const struct member *member);
void coordinator_order_unload(struct coordinator *coordinator, const struct run *run,
                              const struct member *member, const char *reason);
void coordinator_commit(struct coordinator *coordinator, const struct run *run);

/* info.c */
void coordinator_info_fill(const struct coordinator *coordinator, const struct run *run, uint64_t now_ms,
                           Weir__RunInfo *info);
double coordinator_train_seconds(const struct run *run, uint64_t now_ms);
const char *coordinator_state_name(Weir__RunState state); /* "running" */

#endif

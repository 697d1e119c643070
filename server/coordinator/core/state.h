/* The coordinator's state, for the files of its core alone.

   core.c                     takes events
   join.c                     takes members, and lets them go
   runs.c                     moves runs from state to state
   pause.c                    stops and resumes runs
   restore.c                  takes up the runs of a former coordinator
   settle.c                   gives runs members
   load.c                     compares what members have loaded
   views.c                    shares the work among workers
   recover.c                  rolls runs back when servers are lost
   reach.c                    weighs which workers reach which servers
   progress.c                 follows runs to the end
   checkpoints.c, retention.c order, commit and drop checkpoints
   orders.c                   writes what members are told
   record.c                   writes what the store is told
   explain.c                  says what a run waits for
   info.c                     answers questions */
#ifndef WEIR_SERVER_COORDINATOR_CORE_STATE_H
#define WEIR_SERVER_COORDINATOR_CORE_STATE_H

#include "common/agree/plan.h"
#include "server/coordinator/core/assign.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/event_log.h"
#include "server/coordinator/core/groups.h"
#include "server/coordinator/core/rate.h"

/* CUT_OFF: it has loaded the run, but does not reach servers that others reach: it computes nothing. */
enum worker_state {
  WORKER_IDLE,
  WORKER_LOADING,
  WORKER_READY,
  WORKER_CUT_OFF,
  WORKER_REFUSED,
  WORKER_DRAINING
};

struct run;

/* A server or a worker. */
struct member {
  uint64_t key; /* the shell's */
  Weir__Role role;
  char *id; /* "server-1", "worker-1" */
  char *host, *address, *device, *fingerprint;
  char *shm_host; /* workers: equal for those that can share memory; empty: unknown */
  uint32_t pid, executors;
  uint64_t joined_ms, heard_ms;
  bool is_fresh;        /* its process was no member before */
  char *message;        /* why it was refused; servers: why runs go on without it; else empty */
  uint64_t left_out_ms; /* servers: since when, if there is a message */
  bool is_cut_off;      /* servers: for that; runs that load may have it again after a while */

  enum worker_state state;   /* workers: what follows */
  struct run *run;           /* loading, ready, cut off or draining; else NULL */
  uint64_t load_incarnation; /* of the order to load it */
  struct range microbatches, eval_chunks;
  struct grouping group;
  uint64_t *unreached; /* keys of the run's servers that it says it does not reach; NULL: none */
  int n_unreached;
  char *unreached_text;           /* for people; NULL: none */
  uint64_t unreached_ms;          /* since when it says so */
  int group_failures;             /* of its groups, since the run's workers changed */
  const struct run *reserved_for; /* while coordinator_settle runs: the queued run that waits with it */
};

/* A server's part in a run; it outlives the membership, for the server may come back. */
struct run_server {
  char *id, *address;
  struct member *member; /* NULL: lost */
  uint32_t blocks;
  uint64_t bytes; /* of master weights */
  bool is_loaded, is_complete, is_written;
  bool is_gone; /* lost, and known not to come back with its part */
};

/* What the first loaded worker found, and of which kind the first server was: all others must be the same. */
struct reference {
  char *worker;                     /* "worker-1 (HOST)"; NULL until there is one */
  char *dataset_sha256;             /* likewise */
  char *fingerprint, *probe_sha256; /* NULL also after a resume, which may be on another build */
  char *server;                     /* "server-1 (ADDRESS)"; NULL until servers were chosen */
  char *server_fingerprint;         /* likewise, and after a resume */
};

struct written_block {
  char sha256[65]; /* empty until written */
  uint64_t bytes;
};

/* The checkpoint in the making; of each run at most one. */
struct checkpointing {
  uint64_t step;      /* that servers were told to write; 0: none */
  bool is_committing; /* all wrote it; the store's answer is due */
  bool is_for_pause;
  bool is_missed;                /* one failed: the next is due as soon as possible */
  struct written_block *written; /* [n_blocks] */
  uint64_t written_bytes;
  uint64_t lead;               /* how far ahead of the newest step an order must be to be in time */
  uint64_t newest;             /* version that a server was seen at, which may be ahead of its reports */
  uint64_t since_ms;           /* the newest commit or the start: what every_seconds counts from */
  uint64_t retry_ms, pause_ms; /* not before, and how long the newest pause was; 0 after a success */
  char *message;               /* why the newest one failed; empty after a success */
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
  uint64_t base_step;   /* the version that this incarnation begins at */
  bool is_save_awaited; /* the incarnation is not yet known to be in the store: servers are not told of it */
  uint64_t awaited_ms;  /* since when */
  bool is_begun;        /* had a first view: from then on one worker is enough to go on */
  bool is_pausing;
  uint64_t idle_ms; /* while pausing: since when no worker is ready */
  char *cause;      /* why it was rolled back; empty once it runs again */

  struct reference reference;
  struct plan plan; /* not known until the first worker has loaded */
  struct run_server *servers;
  int n_servers;
  uint32_t *owners;   /* [n_blocks] index in servers */
  bool is_load_due;   /* this incarnation has no servers yet; those above are of the one before */
  uint64_t lost_ms;   /* since when a server is lost; meaningful while one is */
  uint64_t grace_ms;  /* how long it is waited for */
  char *loss_cause;   /* which and why, of the newest */
  int reloads;        /* in a row that servers refused */
  uint64_t reload_ms; /* not before */
  uint64_t *refused;  /* keys of workers that are not asked again */
  int n_refused, refused_capacity;
  char *refusal; /* the newest one; NULL before */

  uint64_t view;
  uint32_t groups_seen;      /* the highest number of a group */
  bool are_workers_new;      /* since the newest view */
  uint64_t regroup_ms;       /* when groups that failed are tried again; 0: none is to be */
  uint64_t regroup_pause_ms; /* how long the newest wait for that was */
  bool is_view_due, is_info_due, is_save_due;
  uint64_t step; /* the newest complete version */
  double loss;
  Weir__EvalEvent *evaluation; /* of the newest evaluated version until then; NULL: none */
  struct rate rate;
  uint64_t reported_ms; /* of the newest step report */
  double credit_s;      /* time that has passed and no reported step accounts for */
  struct checkpointing checkpointing;
  Weir__CheckpointInfo **checkpoints; /* committed, by step; each from message_copy */
  int n_checkpoints, checkpoints_capacity;
  char weights_sha256[65]; /* when DONE; of a run that only evaluates: from the first */

  int64_t submitted_unix_ms, finished_unix_ms; /* 0 before */
  double trained_seconds;                      /* until clock_ms */
  uint64_t clock_ms;
  double samples_per_second; /* when DONE in a former coordinator's time; else 0 */
  bool is_clock_running;     /* it trains, or recovers */
  struct event_log events;
};

struct coordinator {
  struct coordinator_options options;
  struct member **members; /* in joining order */
  int n_members, members_capacity;
  struct run **runs; /* in the order of submission */
  int n_runs, runs_capacity;
  uint32_t servers_seen, workers_seen;

  char *store_message;    /* empty: it is well */
  int64_t unix_offset_ms; /* of the wall clock to now_ms, as far as events have told */
  bool is_members_due, is_deposed;

  uint64_t now_ms;    /* of the step in progress */
  uint64_t ticked_ms; /* of the last tick */
  struct coordinator_actions *actions;
};

/* core.c */
struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind);

/* Ends the stream of a member, for a reason that is copied. */
void coordinator_close_link(struct coordinator *coordinator, uint64_t key, enum err_code code,
                            const char *reason);

/* join.c */
void coordinator_member_joined(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello);
void coordinator_member_left(struct coordinator *coordinator, struct member *member, const char *reason);
void coordinator_member_free(struct member *member);
/* An id's number was used: fresh ids are above. */
void coordinator_id_seen(struct coordinator *coordinator, const char *id);

/* runs.c */
struct run *coordinator_run(const struct coordinator *coordinator, const char *id); /* NULL: none */
struct run_server *coordinator_run_server(const struct run *run, const struct member *member);
bool coordinator_owns_block(const struct run *run, const struct member *member, uint32_t block);
bool coordinator_is_over(const struct run *run);
/* The one place where a run's state changes: checks, logs, and lets go of the members when it holds none any
   more. */
void coordinator_run_set_state(struct coordinator *coordinator, struct run *run, Weir__RunState state);
/* The last event of a run that is DONE. */
void coordinator_publish_done(struct coordinator *coordinator, struct run *run);
void coordinator_run_set_message(struct run *run, const char *message);
void coordinator_run_fail(struct coordinator *coordinator, struct run *run, bool is_bad_input,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
void coordinator_model_lost(struct coordinator *coordinator, const char *id, const char *reason);
void coordinator_run_submitted(struct coordinator *coordinator, const struct run_submission *submission);
void coordinator_run_add(struct coordinator *coordinator, struct run *run);
/* A queued run without a plan; everything is copied. */
struct run *coordinator_run_new(const struct coordinator *coordinator,
                                const struct run_submission *submission);
void coordinator_run_free(struct run *run);
void coordinator_run_free_servers(struct run *run);
void coordinator_run_forgotten(struct coordinator *coordinator, const char *id);

/* load.c */
void coordinator_loaded(struct coordinator *coordinator, struct member *member,
                        const Weir__RunLoaded *loaded);
void coordinator_refused(struct coordinator *coordinator, struct member *member,
                         const Weir__RunRefused *refused);

/* pause.c */
void coordinator_run_cancelled(struct coordinator *coordinator, const char *id);
void coordinator_run_paused(struct coordinator *coordinator, const char *id);
void coordinator_run_resumed(struct coordinator *coordinator, const char *id, uint64_t step);
/* The run holds nothing and stands at its newest checkpoint. */
void coordinator_pause_now(struct coordinator *coordinator, struct run *run);
/* Ends a pause that waits for a checkpoint which cannot come, as no worker is there to get to its step. */
void coordinator_pause_when_idle(struct coordinator *coordinator, struct run *run);

/* restore.c */
void coordinator_run_restored(struct coordinator *coordinator, const struct restored_run *restored);

/* kind.c */
/* The run may have the server: it is of the kind of the run's first one, or the run is not deterministic. */
bool coordinator_server_fits(const struct run *run, const struct member *server);
/* Why the run may not have it, with both named; NULL if it may. Freed by the caller. */
char *coordinator_server_mismatch(const struct run *run, const struct member *server);
/* Unless the run has a kind, it is the server's from now on. */
void coordinator_server_set_kind(struct run *run, const struct member *server);

/* settle.c */
void coordinator_worker_set_state(struct member *worker, enum worker_state state);
const char *coordinator_worker_state_name(enum worker_state state);
int coordinator_count_workers(const struct coordinator *coordinator, const struct run *run,
                              enum worker_state state);
/* Those that compute for the run, or load it to do so. */
uint32_t coordinator_count_held(const struct coordinator *coordinator, const struct run *run);
/* Those that it might be given. */
uint32_t coordinator_count_free(const struct coordinator *coordinator, const struct run *run);
/* The member is a server that a run may be given. has_others: it need not be this one. */
bool coordinator_may_own_blocks(const struct coordinator *coordinator, const struct member *member,
                                bool has_others);
/* There is one, and it is of the run's kind. */
bool coordinator_has_server(const struct coordinator *coordinator, const struct run *run);
/* The free worker is told to load the run. */
void coordinator_worker_join_run(struct coordinator *coordinator, struct member *worker, struct run *run);
/* Takes the worker from its run, which goes on without it. */
void coordinator_worker_leave_run(struct member *worker, enum worker_state state);
/* Says which server owns which block. */
void coordinator_place_blocks(struct run *run);
/* After every event: gives free workers and servers to runs, moves runs on, sends the views that are due. */
void coordinator_settle(struct coordinator *coordinator);

/* views.c */
/* Who computes what, and with whom: one view for all that changed. */
void coordinator_send_view(struct coordinator *coordinator, struct run *run);
void coordinator_group_failed(struct coordinator *coordinator, struct member *member,
                              const Weir__GroupFailed *failed);
/* A view is due, and groups that failed may be tried again. */
void coordinator_workers_changed(struct run *run);
/* Groups that failed are tried again after a while, too: what kept them from meeting may have passed. */
void coordinator_regroup_when_due(struct coordinator *coordinator, struct run *run);

/* recover.c */
void coordinator_server_lost(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             const char *reason);
int coordinator_lost_servers(const struct run *run); /* of the present incarnation */
/* The server has come back with its part of the run. */
void coordinator_server_kept(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             struct member *member, uint64_t version);
/* Rolls back when a lost server is not waited for any more. */
void coordinator_recover(struct coordinator *coordinator, struct run *run);
/* The run begins again at its newest checkpoint, in LOADING. */
void coordinator_roll_back(struct coordinator *coordinator, struct run *run, const char *cause);
/* A new incarnation that begins at `step`: nothing that the run did after it counts. Servers stay until
   others are told to load. */
void coordinator_new_incarnation(struct coordinator *coordinator, struct run *run, uint64_t step);
/* Runs go on without the server; one that has no other asks it again after a while. */
void coordinator_leave_out(const struct coordinator *coordinator, const struct run *run,
                           struct member *server, const char *message);
/* A server could not load. */
void coordinator_server_refused(struct coordinator *coordinator, struct run *run, struct run_server *server,
                                const Weir__RunRefused *refused);

/* reach.c */
void coordinator_unreached(struct coordinator *coordinator, struct member *worker,
                           const Weir__Unreached *unreached);
/* Decides which workers of the run, or which of its servers, are cut off. */
void coordinator_weigh_reach(struct coordinator *coordinator, struct run *run);
/* What the worker said counts no more. */
void coordinator_reach_forget(struct member *worker);
/* The same of all workers of the run, which has other servers from now on. */
void coordinator_reach_anew(struct coordinator *coordinator, struct run *run);

/* progress.c */
/* The run that a server reports on, if it may, in its present incarnation; else NULL. */
struct run *coordinator_reporting_run(struct coordinator *coordinator, const struct member *member,
                                      const char *id, uint64_t incarnation);
void coordinator_step_report(struct coordinator *coordinator, struct member *member,
                             const Weir__StepReport *report);
void coordinator_eval_report(struct coordinator *coordinator, struct member *member,
                             const Weir__EvalReport *report);
void coordinator_complete(struct coordinator *coordinator, struct member *member,
                          const Weir__RunComplete *complete);
/* Begins FINISHING once every server is complete and the last evaluation is known. */
void coordinator_finish_when_complete(struct coordinator *coordinator, struct run *run);
/* The last version is committed, or evaluated where nothing is trained: nothing is left to do but to say so.
 */
bool coordinator_is_complete(const struct run *run);
void coordinator_run_done(struct coordinator *coordinator, struct run *run);
/* What the run shows of its progress is that of version `step`. */
void coordinator_progress_reset(struct run *run, uint64_t step);
void coordinator_clock_start(struct coordinator *coordinator, struct run *run);
void coordinator_clock_stop(struct coordinator *coordinator, struct run *run);

/* checkpoints.c */
/* Orders what is due. */
void coordinator_checkpoint_when_due(struct coordinator *coordinator, struct run *run);
void coordinator_checkpoint_abandon(struct run *run);
void coordinator_written(struct coordinator *coordinator, struct member *member,
                         const Weir__BlocksWritten *written);
void coordinator_commit_finished(struct coordinator *coordinator, const struct checkpoint_result *result);
void coordinator_store_told(struct coordinator *coordinator, const char *message);
void coordinator_store_emptied(struct coordinator *coordinator);

/* retention.c */
uint64_t coordinator_newest_checkpoint(const struct run *run); /* that can be read; 0: none, the start */
/* A server could not load it: roll-backs pass over it until that version is written anew, or servers could
   all the same. It is not deleted for that: it may be the server that is wrong. */
void coordinator_checkpoint_pass_over(struct run *run, uint64_t step, bool is_unreadable);
bool coordinator_has_checkpoint(const struct run *run, uint64_t step);
void coordinator_checkpoint_add(struct run *run, const Weir__CheckpointInfo *info);
/* Takes it from the list and has it deleted. */
void coordinator_checkpoint_drop(struct coordinator *coordinator, struct run *run, uint64_t step);
/* Drops those above the step that can be read: they will come again. */
void coordinator_checkpoints_drop_above(struct coordinator *coordinator, struct run *run, uint64_t step);
/* Takes all from the list: they are gone. */
void coordinator_checkpoints_forget(struct run *run);
/* An evaluation may belong to a checkpoint. */
void coordinator_checkpoint_evaluated(struct run *run, const Weir__EvalEvent *evaluation);
/* Drops what is not to be kept any more. */
void coordinator_checkpoints_retain(struct coordinator *coordinator, struct run *run);

/* orders.c */
void coordinator_order_welcome(struct coordinator *coordinator, const struct member *member);
/* Says that we are there: a member that hears nothing for long looks for another coordinator. */
void coordinator_order_beat(struct coordinator *coordinator, const struct member *member);
void coordinator_order_load(struct coordinator *coordinator, const struct run *run,
                            const struct member *member);
void coordinator_order_views(struct coordinator *coordinator, const struct run *run,
                             struct member *const *workers, int n_workers);
void coordinator_order_write(struct coordinator *coordinator, const struct run *run,
                             const struct member *member);
void coordinator_order_keep(struct coordinator *coordinator, const struct run *run,
                            const struct member *member);
void coordinator_order_unload(struct coordinator *coordinator, const char *run, const struct member *member,
                              const char *reason);

/* record.c */
void coordinator_commit(struct coordinator *coordinator, const struct run *run);
void coordinator_save(struct coordinator *coordinator, const struct run *run);
void coordinator_save_members(struct coordinator *coordinator);
Weir__Plan *coordinator_plan_message(struct arena *arena, const struct run *run);
/* Copied: the run may let go of its servers in the same step. */
Weir__Endpoint **coordinator_endpoints(struct arena *arena, const struct run *run);

/* explain.c */
void coordinator_explain(struct coordinator *coordinator, struct run *run);

/* info.c */
void coordinator_info_fill(const struct coordinator *coordinator, const struct run *run, uint64_t now_ms,
                           Weir__RunInfo *info);
const char *coordinator_state_name(Weir__RunState state); /* "running" */

#endif

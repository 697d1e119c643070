/* Runs: what the coordinator knows of each, and how they move on. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_RUN_H
#define WEIR_SERVER_COORDINATOR_STATE_RUN_H

#include "common/agree/plan.h"
#include "server/coordinator/state/checkpointing.h"
#include "server/coordinator/state/core.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/recompute.h"
#include "server/coordinator/events/event_log.h"
#include "server/coordinator/events/rate.h"

struct coordinator;

/* A server's part in a run; it outlives the membership, for the server may come back. */
struct run_server {
  char *id, *address;
  char *host;            /* NULL: not known, of a former coordinator's time */
  struct member *member; /* NULL: lost */
  uint64_t key;          /* of its membership, the last one if it is lost */
  uint32_t blocks;
  uint64_t bytes; /* of master weights */
  bool is_loaded, is_complete, is_written;
  bool is_gone;          /* lost, and known not to come back with its part */
  uint64_t lost_ms;      /* lost servers: since when, */
  uint64_t grace_ms;     /* how long the run waits for it, */
  uint64_t confirmed_ms; /* and when a worker last said that it reaches it; 0: none has */
};

/* What the first worker found when it loaded the run, and the kind of the run's first server. All others must
   be the same. */
struct reference {
  char *worker;                     /* "worker-1 (HOST)"; NULL until there is one */
  char *dataset_sha256;             /* likewise */
  char *fingerprint, *probe_sha256; /* NULL also after a resume, which may be on another build */
  char *server;                     /* "server-1 (ADDRESS)"; NULL until servers were chosen */
  char *server_fingerprint;         /* likewise, and after a resume */
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
  char *loss_cause;   /* which server was lost, and why: of the newest loss */
  int reloads;        /* in a row that servers refused */
  uint64_t reload_ms; /* not before */
  uint64_t *refused;  /* keys of workers that are not asked again */
  int n_refused, refused_capacity;
  char *refusal; /* the newest one; NULL before */

  struct recompute *recompute; /* what is computed elsewhere, too; NULL: nothing */
  struct groups_past groups_past;
  char *suspicion; /* the newest sender that is named, and not in quarantine; NULL: none */

  uint64_t view;
  uint32_t groups_seen;      /* the highest number of a group */
  bool are_workers_new;      /* since the newest view */
  bool are_shares_due;       /* the next view has other shares */
  uint64_t shares_ms;        /* when they were last compared with the best */
  uint64_t gain_ms;          /* since when others would be better; 0: they would not */
  uint64_t regroup_ms;       /* when groups that failed are tried again; 0: none is to be */
  uint64_t regroup_pause_ms; /* how long the newest wait for that was */
  bool is_view_due, is_info_due, is_save_due;
  uint64_t step; /* the newest complete version */
  double loss;
  Weir__EvalEvent *evaluation; /* of the newest evaluated version until then; NULL: none */
  struct rate rate;
  uint64_t reported_ms; /* of the newest step report */
  double credit_s;      /* time that has passed without a reported step to account for it */
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

/* runs.c */
struct run *coordinator_run(const struct coordinator *coordinator, const char *id); /* NULL: none */
struct run_server *coordinator_run_server(const struct run *run, const struct member *member);
bool coordinator_owns_block(const struct run *run, const struct member *member, uint32_t block);
bool coordinator_is_over(const struct run *run);
/* The one place where a run's state changes. It checks the change, logs it, and lets the members go when the
   new state holds none. */
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
/* Whether the run may have the server: its kind is that of the run's first server, or the run is not
   deterministic. */
bool coordinator_server_fits(const struct run *run, const struct member *server);
/* Why the run may not have it, with both named; NULL if it may. Freed by the caller. */
char *coordinator_server_mismatch(const struct run *run, const struct member *server);
/* Unless the run has a kind, it is the server's from now on. */
void coordinator_server_set_kind(struct run *run, const struct member *server);

/* settle.c */
int coordinator_count_workers(const struct coordinator *coordinator, const struct run *run,
                              enum worker_state state);
/* The workers that compute for the run, or load or follow it to do so. */
uint32_t coordinator_count_held(const struct coordinator *coordinator, const struct run *run);
/* The workers that the run might be given. */
uint32_t coordinator_count_free(const struct coordinator *coordinator, const struct run *run);
/* Whether the member is a server that a run may be given. has_others: there are other servers to choose from.
 */
bool coordinator_may_own_blocks(const struct coordinator *coordinator, const struct member *member,
                                bool has_others);
/* Whether there is a server that the run may be given, of the run's kind. */
bool coordinator_has_server(const struct coordinator *coordinator, const struct run *run);
/* Says which server owns which block. */
void coordinator_place_blocks(struct run *run);
/* After every event: gives free workers and servers to runs, moves runs on, sends the views that are due. */
void coordinator_settle(struct coordinator *coordinator);

/* views.c */
/* Who computes what, and with whom: one view for all that changed. */
void coordinator_send_view(struct coordinator *coordinator, struct run *run);
/* The workers that compute for the run, *n of them, in the order of their work; of the step's arena. */
struct member **coordinator_ready_workers(const struct coordinator *coordinator, const struct run *run,
                                          int *n);
void coordinator_group_failed(struct coordinator *coordinator, struct member *member,
                              const Weir__GroupFailed *failed);
/* The run's workers have changed: a view with other shares is due, and groups that failed may be tried again.
 */
void coordinator_workers_changed(struct run *run);
/* Groups that failed are tried again after a while, too: what kept them from meeting may have passed. */
void coordinator_regroup_when_due(struct coordinator *coordinator, struct run *run);

/* follow.c */
/* The worker has loaded the run, or reaches its servers again. It follows while others compute; else it
   computes at once. */
void coordinator_worker_follow(struct coordinator *coordinator, struct member *worker);
void coordinator_ready(struct coordinator *coordinator, struct member *worker, const Weir__Ready *ready);
/* Those that have caught up compute from the next view on; all of them where nobody else does. Says who is
   late. */
void coordinator_admit_followers(struct coordinator *coordinator, struct run *run);
void coordinator_admit_follower(struct member *worker);
/* The worker, which was ready, computes nothing: others compute for it until it comes back. */
void coordinator_set_aside(struct coordinator *coordinator, struct member *worker);
void coordinator_follow_forget(struct member *worker);

/* shares.c */
void coordinator_heartbeat(struct coordinator *coordinator, struct member *member,
                           const Weir__Heartbeat *heartbeat);
/* How fast the workers are, beside each other: those that were not measured, by the executor, as the others
   on average. [n] in the arena. */
struct assign_worker *coordinator_speeds(struct arena *arena, struct member *const *workers, int n);
/* Gives the n workers, in their order, ranges by their speeds. */
void coordinator_share_work(struct coordinator *coordinator, struct run *run, struct member *const *workers,
                            int n);
/* Other shares are due once they have promised much for some time. */
void coordinator_reshare_when_due(struct coordinator *coordinator, struct run *run);

/* recover.c */
void coordinator_server_lost(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             const char *reason);
int coordinator_lost_servers(const struct run *run); /* of the present incarnation */
/* The server has come back with its part of the run. */
void coordinator_server_kept(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             struct member *member, uint64_t version);
/* Rolls the run back once it no longer waits for a lost server. */
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

/* confirm.c */
/* A worker's heartbeat names the servers that it reaches. */
void coordinator_confirm(struct coordinator *coordinator, struct member *worker,
                         const Weir__Heartbeat *heartbeat);
/* Whether the server is lost and workers of the run reach it: it is kept, for a while. */
bool coordinator_is_confirmed(const struct coordinator *coordinator, const struct run_server *server);

/* reach.c */
void coordinator_unreached(struct coordinator *coordinator, struct member *worker,
                           const Weir__Unreached *unreached);
/* Decides which workers of the run, or which of its servers, are cut off. */
void coordinator_weigh_reach(struct coordinator *coordinator, struct run *run);
/* Forgets which servers the worker said that it does not reach. */
void coordinator_reach_forget(struct member *worker);
/* The same for all workers of the run, which has other servers from now on. */
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
/* Sets the progress that the run shows back to version `step`. */
void coordinator_progress_reset(struct run *run, uint64_t step);
void coordinator_clock_start(struct coordinator *coordinator, struct run *run);
void coordinator_clock_stop(struct coordinator *coordinator, struct run *run);

/* explain.c */
void coordinator_explain(struct coordinator *coordinator, struct run *run);

/* info.c */
void coordinator_info_fill(const struct coordinator *coordinator, const struct run *run, uint64_t now_ms,
                           Weir__RunInfo *info);
const char *coordinator_state_name(Weir__RunState state); /* "running" */

#endif

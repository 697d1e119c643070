/* The shell around the core, for the files of the coordinator's services alone. One thread, the event loop,
   owns the core and every list below; what comes from gRPC's threads or from the store's is a task for it.
   The thread `jobs` writes and deletes in the store, in the order given, so that a commit never meets a
   deletion half done; others write the lease, and the models of new runs. The thread `slow` reads what is
   large, and checks and stores those models. The thread `searching` finds out what sweeps do next.

   service.c   begins, ends, carries out the core's actions
   lead.c      begins to lead and ceases to
   members.c   speaks with members
   ask.c       finds out what calls ask about, and who may
   training.c  answers questions, those of /metrics too
   manage.c    does what people ask of runs and their checkpoints
   wishes.c    answers calls that change runs, once the store has it
   watch.c     follows runs, and collects timelines of their members
   submit.c    takes new runs, submit_pieces.c their pieces
   fork.c      makes new runs of others' checkpoints, fork_wait.c waits for those that are still written
   download.c  sends models, pieces of them and weights
   saves.c     keeps runs, events and members in the store
   commit.c    commits and deletes checkpoints
   garbage.c   fills an emptied store again, deletes what nothing refers to
   sweeps.c    has sweeps decide, sweep_log.c keeps their logs, sweep_trials.c makes their trials' runs,
               sweep_calls.c answers about them
 */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_SHELL_H
#define WEIR_SERVER_COORDINATOR_SHELL_SHELL_H

#include <pthread.h>

#include "common/rpc/server.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/shell/reading/reads.h"
#include "server/coordinator/shell/reading/run_model.h"
#include "server/coordinator/shell/reading/stored_runs.h"
#include "server/coordinator/shell/service.h"
#include "server/coordinator/shell/threads/lease.h"
#include "server/coordinator/shell/threads/sender.h"
#include "server/coordinator/shell/threads/tasks.h"
#include "server/coordinator/state/tenant.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/identity.h"

struct link;
struct trace_call;
struct watch;
struct wish;
struct drop_job;
struct fork_base;
struct piece_hold;
struct members_save;
struct overview;
struct saved_run;
struct shell_sweep;
struct upload;

enum { SHELL_TEXT_SIZE = 512, TRAINING_METHODS = 31, RUN_ID_SIZE = 128 };

/* The model of a run that is not over. Those of one key are the same one. */
struct live_model {
  char *run, *key; /* key: in the store */
  struct run_model *model;
  struct live_model *next;
};

/* Whether calls are answered; any thread. */
struct standing {
  pthread_mutex_t lock;
  pthread_cond_t settled;
  bool is_leading;
  bool is_settled;           /* or it is known why not yet */
  char why[SHELL_TEXT_SIZE]; /* not */
};

struct coordinator_service {
  struct coordinator_service_options options;
  struct store *store;
  struct rpc_service services[COORDINATOR_SERVICES];
  struct rpc_method training[TRAINING_METHODS];
  struct task_thread *event_loop, *jobs, *slow, *searching, *verifying;
  struct sender *sender;
  struct lease *lease; /* NULL before coordinator_service_lead */
  struct standing standing;
  uint64_t links_seen; /* atomic: keys of members */
  uint32_t uploads;    /* atomic: in progress */
  pthread_mutex_t uploads_lock;
  struct upload *uploads_list; /* under uploads_lock */
  struct quotas quotas;        /* set by the event loop, under uploads_lock */
  struct reads reads;
  bool is_ending; /* atomic: threads are to drop what takes long */

  /* set by the event loop before the first job that reads it */
  uint64_t term;
  char identity[STORE_IDENTITY_SIZE]; /* of the store; found by the jobs, the event loop's own once we lead */

  /* the jobs' own */
  struct block_refs *refs; /* NULL: not read yet */
  struct piece_hold *holds;
  bool gave_up; /* while ending: the store does not answer */

  /* the event loop's own */
  struct coordinator *core; /* NULL before we lead */
  struct coordinator_actions actions;
  struct link *links;
  struct watch *watches;
  struct trace_call *tracing; /* NULL: nobody traces a run */
  uint64_t traces;            /* so far */
  struct wish *wishes;        /* calls that wait for the store */
  int n_wishes;
  struct fork_wait *fork_waits; /* calls that wait for checkpoints */
  int n_fork_waits;
  struct live_model *models;
  struct download *fetches; /* models that are being read for runs */
  struct saved_run *saves;
  struct members_save *members;
  struct drop_job *drops; /* checkpoints to delete */
  struct shell_sweep *sweeps;
  struct overview *overview; /* of `core` */
  uint64_t refill_ms; /* when to give an emptied store its identity and models again; 0: not to be done */
  uint64_t fetch_ms;  /* when to look for models that could not be read; 0: there are none */
  bool was_emptied;
  char lease_message[SHELL_TEXT_SIZE], save_message[SHELL_TEXT_SIZE]; /* what is wrong with the store */
  uint64_t ticked_ms;
  bool is_stopping;
};

/* service.c; event loop */
uint64_t shell_now_ms(void);
/* Passes an event to the core and carries out its actions. Not to be called by an action. */
void shell_step(struct coordinator_service *shell, const struct coordinator_event *event);
struct live_model *shell_find_model(struct coordinator_service *shell, const char *run);
/* The run has that model from now on, or the one of this key that another has. Takes it. */
void shell_keep_model(struct coordinator_service *shell, const char *run, const char *key,
                      struct run_model *model);
/* Likewise, if another has one of this key. False: none has. */
bool shell_share_model(struct coordinator_service *shell, const char *run, const char *key);
void shell_release_model(struct coordinator_service *shell, const char *run);

/* lead.c */
void shell_lead_init(struct coordinator_service *shell);
void shell_lead_fini(struct coordinator_service *shell);
/* Fails the call if we do not lead. Any thread. */
bool shell_turns_away(struct coordinator_service *shell, struct rpc_call *call);
/* False: we do not lead, and why goes to `text`. Any thread. */
bool shell_is_leading(struct coordinator_service *shell, char text[SHELL_TEXT_SIZE]);
bool shell_is_ending(const struct coordinator_service *shell); /* any thread */
/* Event loop: ends every link and every watch, and from then on does nothing. */
void shell_let_go(struct coordinator_service *shell, const char *why);
void shell_depose(struct coordinator_service *shell, const char *reason);
/* Event loop: what is wrong with the store as seen by a part of the shell, "" when it is well. The core is
   told when that changes. */
void shell_store_message(struct coordinator_service *shell, char part[SHELL_TEXT_SIZE], const char *message);

/* members.c */
void shell_join_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_join_on_half_close(struct rpc_call *call);
void shell_join_on_closed(struct rpc_call *call);
void shell_order(struct coordinator_service *shell, uint64_t key, const Weir__Order *order);
void shell_close_link(struct coordinator_service *shell, uint64_t key, enum err_code code,
                      const char *reason);
void shell_close_overrun_links(struct coordinator_service *shell);
void shell_close_links(struct coordinator_service *shell, const char *why);

/* watch.c */
void shell_watch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_watch_on_closed(struct rpc_call *call);
bool shell_pump_watches(struct coordinator_service *shell); /* true: some could not take everything */
void shell_close_watches(struct coordinator_service *shell, const char *why);
void shell_trace_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_trace_on_closed(struct rpc_call *call);
/* What a member has captured; that it is no more. */
void shell_traced(struct coordinator_service *shell, uint64_t key, const Weir__Traced *traced);
void shell_trace_left(struct coordinator_service *shell, uint64_t key);
void shell_trace_turn(struct coordinator_service *shell);
void shell_close_trace(struct coordinator_service *shell, const char *why);

/* submit.c */
void shell_submit_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_submit_on_half_close(struct rpc_call *call);
void shell_submit_on_closed(struct rpc_call *call);
/* An id NAME-xxxxxx that no run in the store has, however old it is. Blocks. Errors: the store's. */
int run_id_draw(struct store *store, const char *name, char id[RUN_ID_SIZE], struct err *err);

/* fork_wait.c */
void shell_fork_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);

void shell_forks_turn(struct coordinator_service *shell, uint64_t now_ms); /* those that waited go on */
void shell_close_forks(struct coordinator_service *shell, const char *why);

/* ask.c */
/* One message, and what it is about. Event loop; good for the call of its answer_function. */
struct asked {
  const void *message;
  struct viewer viewer; /* who asks */
  const char *run;      /* whole id of the run that the message's `run` names; NULL: it has no such field */
  struct shell_sweep *sweep; /* likewise, of its `sweep` */
};
typedef void answer_function(struct coordinator_service *shell, struct rpc_call *call,
                             const struct asked *asked);
/* Has it answered by the event loop, if we lead. What its caller may not see is answered NOT_FOUND. */
void shell_ask(struct rpc_call *call, const void *message, struct rpc_bytes *bytes, answer_function *answer);
struct viewer shell_viewer(const struct rpc_call *call); /* any thread, while the call is there */
/* The call counts among what its tenant reads, as its user, which is NULL before: until sender_finish or, if
   it is not finished by that, on_closed. False: there are too many. Any thread. Errors: those of read_begin.
 */
bool shell_read_begin(struct coordinator_service *shell, struct rpc_call *call, enum read_kind kind,
                      struct err *err);
/* Event loop: the whole id of the run that the caller names, or fails the call. NULL: failed. */
const char *shell_find_run(struct coordinator_service *shell, struct rpc_call *call, const char *prefix);

/* training.c */
void shell_list_runs_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_run_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_list_workers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_drain_worker_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_drain_server_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_readmit_worker_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_list_servers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_overview_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_series_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_model_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
int shell_fetch_on_begin(struct rpc_call *call, struct err *err);
void shell_get_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_fetch_model_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_fetch_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_pieces_on_closed(struct rpc_call *call);
void shell_get_weights_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_layout_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_batch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_fetch_layout_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_fetch_batch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);

/* wishes.c; event loop */
/* Passes the event, which is to change the run, to the core, and answers the call with the run once the store
   has that. */
void shell_wish(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                const struct coordinator_event *event);
void shell_wishes_turn(struct coordinator_service *shell, uint64_t now_ms); /* answers those that may be */
void shell_close_wishes(struct coordinator_service *shell, const char *why);

/* manage.c */
void shell_cancel_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_pause_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_stop_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_set_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_resume_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_list_checkpoints_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_verify_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_collect_garbage_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
/* The step of a committed checkpoint of the run: the one wanted, or (NULL) the newest that can be read.
   False: there is none, and err (NOT_FOUND) names those that are; or (INVALID) the run is being deleted. */
bool shell_pick_checkpoint(struct coordinator_service *shell, const char *run, const uint64_t *wanted,
                           uint64_t *step, struct err *err);

/* download.c; event loop. All finish the call, now or later; but for pieces by sender_finish. run: its whole
   id. */
void shell_send_model(struct coordinator_service *shell, struct rpc_call *call, const char *run);
void shell_send_outline(struct coordinator_service *shell, struct rpc_call *call,
                        const char *run); /* what members get of the model */
void shell_send_pieces(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                       const Weir__PiecesRequest *request);
void shell_send_weights(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                        uint64_t step, bool is_average);
void shell_send_layout(struct coordinator_service *shell, struct rpc_call *call, const char *run);
/* Reads the model of a run that is not over from the store, unless it is in memory, and keeps it: once for
   all runs that have it. Asks until the store answers. The core is told if the model is lost. */
void shell_fetch_model(struct coordinator_service *shell, const char *run);
void shell_fetch_models(struct coordinator_service *shell); /* of all runs that are not over */

/* saves.c; event loop */
/* What this coordinator knows itself of what was saved of the run, it goes on with. */
void shell_saves_restored(struct coordinator_service *shell, const struct stored_run *run);
/* The call of a submission is answered when the record of its run, which the core has been given, is
   durable, and the model with it. */
void shell_saves_await(struct coordinator_service *shell, const char *run, struct rpc_call *submitter,
                       struct run_model *model);
/* The same of a fork, whose base goes with its first record; the reply is that of its call. base is taken;
   NULL: it is to come, and goes with a later record. */
void shell_saves_await_fork(struct coordinator_service *shell, struct rpc_call *call, struct fork_base *base,
                            const Weir__ForkReply *reply);
/* The base goes with the record that comes next. It is taken. */
void shell_saves_await_base(struct coordinator_service *shell, const char *run, struct fork_base *base);
/* At once where it is waited for, or goes with one that is; else at the next tick, or now. */
void shell_save(struct coordinator_service *shell, const struct coordinator_action *action);
void shell_saves_hurry(struct coordinator_service *shell, const char *run);
/* The number of the newest record of the run that was to be saved, and whether the store has it, or a newer
   one. FAILED: it is tried again. */
enum save_state { SAVE_UNDER_WAY, SAVE_DONE, SAVE_FAILED };
uint64_t shell_saves_newest(struct coordinator_service *shell, const char *run);
enum save_state shell_saves_state(struct coordinator_service *shell, const char *run, uint64_t record);
void shell_save_members(struct coordinator_service *shell, const Weir__Members *members);
void shell_saves_published(struct coordinator_service *shell, const char *run);
void shell_save_events(struct coordinator_service *shell,
                       const char *run); /* writes at once what is not written yet */
void shell_saves_turn(struct coordinator_service *shell, uint64_t now_ms);
void shell_saves_emptied(struct coordinator_service *shell); /* nothing that was written is there any more */
/* While a run is being deleted nothing of it is written. shell_saves_deleted says how that ended. */
void shell_saves_deleting(struct coordinator_service *shell, const char *run);
/* Calls `each` for every run that is to be in the store. */
void shell_saves_each(struct coordinator_service *shell,
                      void (*each)(struct coordinator_service *shell, const char *run));
bool shell_saves_is_deleting(struct coordinator_service *shell, const char *run);
void shell_saves_deleted(struct coordinator_service *shell, const char *run, bool is_deleted);
void shell_saves_stop(struct coordinator_service *shell, bool is_deposed); /* the last jobs of this kind */
void shell_saves_fini(struct coordinator_service *shell);

/* commit.c; event loop */
void shell_commit(struct coordinator_service *shell, const Weir__Manifest *manifest, bool is_last);
void shell_drop(struct coordinator_service *shell, const char *run, uint64_t step);
void shell_drops_turn(struct coordinator_service *shell, uint64_t now_ms); /* those that wait */
void shell_drops_fini(struct coordinator_service *shell);

/* commit.c; jobs */
/* False, and err is set, when the store is not to be asked any more: we are ending, and it did not answer. */
bool shell_may_write(const struct coordinator_service *shell, struct err *err);
void shell_note_failure(struct coordinator_service *shell, const struct err *err); /* of a write */
/* Counts the references to blocks where they are not counted. False: err says why. */
bool shell_has_refs(struct coordinator_service *shell, struct err *err);

/* sweeps.c; event loop */
/* The run, which may be a trial's, has news. */
void shell_sweeps_published(struct coordinator_service *shell, const char *run);
/* Carries out what the sweeps with news decide; of all of them, where is_tick. */
void shell_sweeps_turn(struct coordinator_service *shell, bool is_tick);
void shell_sweeps_emptied(struct coordinator_service *shell); /* nothing of them is in the store any more */
void shell_sweeps_stop(struct coordinator_service *shell, const char *why);
void shell_sweeps_fini(struct coordinator_service *shell);

/* sweep_trials.c; event loop */
/* Whether people may set the run's hold. Errors: INVALID, of a trial whose sweep has not ended: the sweep
   waits for its trial at the next rung, and would do so for ever if the trial went past it. */
int shell_sweep_check_hold(struct coordinator_service *shell, const Weir__RunInfo *run, struct err *err);

/* sweep_calls.c */
void shell_list_sweeps_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_get_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_extend_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_delete_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
void shell_stop_sweep_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);

/* garbage.c; event loop */
/* Deletes what nothing refers to. */
void shell_collect_all(struct coordinator_service *shell);
/* Gives an emptied store its identity, and the models that are in memory, until it takes them. */
void shell_refill(struct coordinator_service *shell);
/* Errors: BUSY while a call reads checkpoints of the run. */
int shell_refuse_read(struct coordinator_service *shell, const char *run, struct err *err);
/* Deletes runs (ids, or prefixes of ids that the core does not know; taken) and all else that nothing refers
 * to; answers the call. */
void shell_collect_garbage(struct coordinator_service *shell, struct rpc_call *call,
                           const struct viewer *viewer, char **runs, int n_runs);
/* The same with a sweep that is over: the runs of its trials, of which some may be gone, then itself. */
void shell_collect_sweep(struct coordinator_service *shell, struct rpc_call *call,
                         const struct viewer *viewer, struct shell_sweep *sweep);

#endif

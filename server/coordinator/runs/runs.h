/* Runs: how they move from state to state, by what people ask and servers report.

   runs.c      their states, from submission to the end
   pause.c     stopped and taken up again at people's wish
   hold.c      held at a version, and let go on
   patience.c  ended early by what evaluations say
   spill.c     held, with their blocks in the store alone
   pins.c      versions of them that forks wait for
   progress.c  what servers report, up to the last version */
#ifndef WEIR_SERVER_COORDINATOR_RUNS_RUNS_H
#define WEIR_SERVER_COORDINATOR_RUNS_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/run.h"

/* runs.c */
/* The one place where a run's state changes. It checks the change, logs it, and lets the members go when the
   new state holds none. */
void coordinator_run_set_state(struct coordinator *coordinator, struct run *run, Weir__RunState state);
/* The store has a record of the run. Where that has the state in which the run stopped, clients are told of
   it from now on. */
void coordinator_run_saved(struct coordinator *coordinator, const struct saved_state *saved);
/* The last event of a run that is DONE or STOPPED. */
void coordinator_publish_done(struct coordinator *coordinator, struct run *run);
enum run_failure {
  FAILURE_OURS, /* the cluster's, the store's or a member's: the run may be resumed */
  FAILURE_BAD_INPUT,
  FAILURE_DIVERGED, /* its training diverges */
};
void coordinator_run_fail(struct coordinator *coordinator, struct run *run, enum run_failure failure,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
/* A fork that would have to begin again, and has no checkpoint that can be read. */
void coordinator_fail_without_base(struct coordinator *coordinator, struct run *run, const char *cause);
void coordinator_model_lost(struct coordinator *coordinator, const char *id, const char *reason);
void coordinator_run_submitted(struct coordinator *coordinator, const struct run_submission *submission);
/* The run has what spec_take_live takes from the spec. */
void coordinator_run_set(struct coordinator *coordinator, const char *id, const Weir__RunSpec *spec);
void coordinator_run_add(struct coordinator *coordinator, struct run *run);
void coordinator_run_forgotten(struct coordinator *coordinator, const char *id);
/* A new incarnation that begins at `step`: nothing that the run did after it counts. Servers stay until
   others are told to load. */
void coordinator_new_incarnation(struct coordinator *coordinator, struct run *run, uint64_t step);

/* pause.c */
void coordinator_run_cancelled(struct coordinator *coordinator, const char *id);
void coordinator_run_paused(struct coordinator *coordinator, const char *id);
void coordinator_run_resumed(struct coordinator *coordinator, const char *id, uint64_t step);
/* The run holds nothing and stands at its newest checkpoint. */
void coordinator_pause_now(struct coordinator *coordinator, struct run *run);
/* A run that computes, or is held, ends with its next checkpoint, and keeps its result: STOPPED. */
void coordinator_run_stopped(struct coordinator *coordinator, const char *id);
/* Of a run that is to pause or to stop: at its newest checkpoint, if that is enough. To stop, it must have
   the hash of its weights. */
void coordinator_stop_training(struct coordinator *coordinator, struct run *run);
/* Ends a pause that waits for a checkpoint which cannot come, as no worker is there to get to its step. */
void coordinator_pause_when_idle(struct coordinator *coordinator, struct run *run);

/* hold.c */
/* All blocks of a server are at the hold. */
void coordinator_held(struct coordinator *coordinator, struct member *member, const Weir__RunHeld *held);
/* A run that has come to its hold is HELD; servers are told a hold that they do not know. */
void coordinator_hold_when_due(struct coordinator *coordinator, struct run *run);
/* The hold is `step` from now on, or 0: there is none any more. A run without one, or with a higher one,
   stays as it is. One that is HELD goes on. */
void coordinator_raise_hold(struct coordinator *coordinator, struct run *run, uint64_t step);
/* The same of the run with that id, if it is there and not over. */
void coordinator_hold_raised(struct coordinator *coordinator, const char *id, uint64_t step);

/* patience.c */
/* Counts the evaluation, unless that version has counted: it may raise the run's bound, or end the run early.
 */
void coordinator_patience_evaluated(struct run *run, const Weir__EvalEvent *evaluation);
/* Says in the message of a run that has ended early why. */
void coordinator_patience_explain(struct run *run);

/* The worker leaves its run, and keeps what it has loaded of it. */
void coordinator_rest_seat(struct coordinator *coordinator, struct seat *seat, const char *reason);

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
/* The run ends DONE or STOPPED with that checkpoint, which has the hash of its weights; NULL: at version 0.
 */
void coordinator_run_end(struct coordinator *coordinator, struct run *run, const Weir__CheckpointInfo *last,
                         Weir__RunState state);
/* Sets the progress that the run shows back to version `step`. */
void coordinator_progress_reset(struct run *run, uint64_t step);
/* It trains from now on: its clock goes on, and its speed is measured anew. */
void coordinator_measure_anew(struct coordinator *coordinator, struct run *run);
void coordinator_clock_start(struct coordinator *coordinator, struct run *run);
void coordinator_clock_stop(struct coordinator *coordinator, struct run *run);

/* pins.c. A fork whose base is to come (origin.is_to_come) is QUEUED, and has nothing of the cluster. Its
   parent makes a checkpoint of that version, and its workers stand there until the fork has what it begins
   with: its base in the store and, where there is room, its blocks in the memory of the parent's servers. */
/* Forks that wait go on where they can, or fail where their version will not be made; runs know what is
   waited for. */
void coordinator_pins_settle(struct coordinator *coordinator);
/* The shell has taken over the base of a fork, or could not. */
void coordinator_run_based(struct coordinator *coordinator, const struct based_run *based);

/* spill.c */
/* Servers drop the blocks of the run, which coordinator_may_spill (room.h). */
void coordinator_spill(struct coordinator *coordinator, struct run *run);
/* Spills runs, longest-held first, until the run fits. False if that would not do: then none is. */
bool coordinator_make_room(struct coordinator *coordinator, const struct run *run);
/* Makes room for the first run that waits for it, by priority, and would have some. */
void coordinator_spill_when_needed(struct coordinator *coordinator);

#endif

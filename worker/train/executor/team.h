/* Teams: the executors that compute a task together, each of them a stage of the model. A team has as many
   tasks under way as it has stages; they are handed on from executor to executor under the run's lock. An
   executor by itself is a team of one stage. Where other workers have the other stages, tasks come from them
   and go on to them by the run's edges. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_TEAM_H
#define WEIR_WORKER_TRAIN_EXECUTOR_TEAM_H

#include "worker/train/executor/pipeline.h"
#include "worker/train/executor/task.h"
#include "worker/train/executor/team_times.h"

struct team {
  struct run *run;
  int n_stages;             /* of the model; the run's part of them is computed here */
  struct pipeline pipeline; /* the run's lock */
  struct team_times times;  /* the run's lock */
  struct task **tasks;      /* [n_stages] of each slot; a busy slot's is its executor's */
};

void team_init(struct team *team, struct run *run);
void team_fini(struct team *team); /* nothing is under way */

/* What an executor does next. A task that is dropped by then is only to be let go of. */
struct turn {
  int slot;
  enum pipeline_part part;
  int context; /* of the executor's program */
};

/* What the stage is to do now: of a task under way or, at the first one here, of a new one. False: nothing.
 */
bool team_take_locked(struct team *team, int stage, struct turn *turn);

/* Whether its executors are among those that may compute; the first team's always are. A task that it is at
   goes on. */
bool team_is_seated(const struct team *team);

/* No task is under way. */
bool team_is_idle_locked(const struct team *team);

/* It was done, or the task dropped. has_more: the task does not go back, and has another execution. */
void team_give_locked(struct team *team, const struct turn *turn, bool has_more);

#endif

/* Following: a worker to which the view gives nothing holds each version as it comes, so that it can begin at
   once when it is given work. It says that it is Ready when the version that it holds is the newest of the
   servers or the one before, and nothing of an older one is being computed here. Every function needs the
   run's lock. */
#ifndef WEIR_WORKER_TRAIN_RUN_FOLLOW_H
#define WEIR_WORKER_TRAIN_RUN_FOLLOW_H

#include "worker/train/run/run_state.h"

/* A view has come, or the run was joined anew: what was said before counts no more. */
void follow_begin(struct run *run);

/* A version is complete, or a task has ended. Where the worker follows and has not said that it is Ready, it
   asks the servers for their versions. */
void follow_look(struct run *run);

/* A server has answered: the lowest of its blocks' newest versions. */
void follow_answered(struct run *run, uint64_t version);

#endif

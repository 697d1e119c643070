/* Entering and leaving a run: its views, the servers' versions, beginning anew. All on the run's thread. */
#ifndef WEIR_WORKER_TRAIN_PARTICIPATE_H
#define WEIR_WORKER_TRAIN_PARTICIPATE_H

#include "worker/train/run/run_state.h"

/* N of an id worker-N, which the coordinator uses once; 0 for any other. */
uint32_t worker_number(const char *id);

/* What a view gives a worker; empty when it is not named. */
struct share view_share(const Weir__View *view, const char *worker);

/* True if the run has failed and a view has come that says that it was rolled back since. Lock held. */
bool run_may_revive(const struct run *run);

/* Acts on what changed since the last call (a view, a server that moved on, a failure), then returns. Called
   and left with the run's lock held, which it gives up while it waits. */
void run_participate_locked(struct run *run);

/* Ends the part in the run: no task is computed, nothing is under way. Lock as above. */
void run_leave_locked(struct run *run);

#endif

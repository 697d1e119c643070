/* Which servers of the run are not reached, for the coordinator: it gives our work to others, or does without
   the servers. */
#ifndef WEIR_WORKER_TRAIN_REACH_H
#define WEIR_WORKER_TRAIN_REACH_H

#include "worker/train/run/run_state.h"

/* The run's transfers tell; takes the run's lock. */
void run_on_unreached(void *user, const struct transfers_unreached *unreached);

/* All servers have answered: says so where something else was said before. */
void run_tell_reached_locked(struct run *run);

#endif

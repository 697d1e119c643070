/* The servers of the run that this worker does not reach, reported to the coordinator: it gives our work to
   others, or does without those servers. */
#ifndef WEIR_WORKER_TRAIN_REACH_H
#define WEIR_WORKER_TRAIN_REACH_H

#include "worker/train/run/run_state.h"

/* The run's transfers tell; takes the run's lock. */
void run_on_unreached(void *user, const struct transfers_unreached *unreached);

/* All servers have answered: says so where something else was said before. */
void run_tell_reached_locked(struct run *run);

#endif

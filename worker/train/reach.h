/* The servers of the run that this worker does not reach, reported to the coordinator: it gives our work to
   others, or does without those servers. And those that it reaches: the coordinator keeps one of which it
   does not hear itself. */
#ifndef WEIR_WORKER_TRAIN_REACH_H
#define WEIR_WORKER_TRAIN_REACH_H

#include "worker/train/run/run_state.h"

/* A callback of the run's transfers. Takes the run's lock. */
void run_on_unreached(void *user, const struct transfers_unreached *unreached);

/* All servers have answered: tells the coordinator, if it was told otherwise before. */
void run_tell_reached_locked(struct run *run);

/* Fills counters->reached; the list and its names are in the arena. */
void run_fill_reached_locked(struct run *run, Weir__RunCounters *counters, struct arena *arena);

#endif

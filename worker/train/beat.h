/* What a heartbeat says of a run: how fast this worker is at it, and whom it reaches. */
#ifndef WEIR_WORKER_TRAIN_BEAT_H
#define WEIR_WORKER_TRAIN_BEAT_H

#include "common/base/memory.h"
#include "worker/train/run.h"

/* The run's counters, in the arena; NULL: it has failed. Any thread; never blocks. */
Weir__RunCounters *run_beat(struct run *run, struct arena *arena);

#endif

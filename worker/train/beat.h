/* What a heartbeat says of a run: how fast this worker is, and whom it reaches. */
#ifndef WEIR_WORKER_TRAIN_BEAT_H
#define WEIR_WORKER_TRAIN_BEAT_H

#include "common/base/memory.h"
#include "worker/train/run.h"

/* Fills the heartbeat, in the arena. One of a run that has failed stays as it is. Any thread; never blocks.
 */
void run_beat(struct run *run, Weir__Heartbeat *heartbeat, struct arena *arena);

#endif

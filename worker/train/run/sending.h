/* Parts and pulls on their way to the servers, as train.compression says. */
#ifndef WEIR_WORKER_TRAIN_RUN_SENDING_H
#define WEIR_WORKER_TRAIN_RUN_SENDING_H

#include "worker/train/run/run_state.h"

enum { SENT_TOGETHER_MAX = 16 };

/* Starts n transfers, at most SENT_TOGETHER_MAX. A sum of the wire level is compressed where it lies, in host
   memory. Any thread that has begun a task or holds the run's lock. */
void sending_start(struct run *run, const struct transfer_item *items, int n);

#endif

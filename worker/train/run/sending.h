/* Parts and pulls on their way to the servers, as train.compression says. */
#ifndef WEIR_WORKER_TRAIN_RUN_SENDING_H
#define WEIR_WORKER_TRAIN_RUN_SENDING_H

#include "common/share/share.h"
#include "worker/train/run/run_state.h"

/* As many as fill one call to each of four servers of this host. */
enum { SENT_TOGETHER_MAX = 4 * SHARE_PARTS_MAX };

/* Starts n transfers, at most SENT_TOGETHER_MAX. A sum of the wire level is compressed where it lies, in host
   memory. Any thread that has begun a task or holds the run's lock. */
void sending_start(struct run *run, const struct transfer_item *items, int n);

#endif

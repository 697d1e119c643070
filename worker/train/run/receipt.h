/* What the servers of a run send back: versions, blocks of weights, refusals. These are the callbacks of
   struct transfers_options; user is the run, whose lock they take. */
#ifndef WEIR_WORKER_TRAIN_RUN_RECEIPT_H
#define WEIR_WORKER_TRAIN_RUN_RECEIPT_H

#include "worker/train/transfer/transfers.h"

/* A block is copied once, from the received bytes to its place among the weights. A server's version counts
   for the one that the run begins at. A block of another version or size than was asked for fails the run. */
void receipt_received(void *user, const struct transfer_item *item, uint64_t version,
                      const struct received *received);

/* A refusal. The run begins anew where the server is elsewhere in it; any other refusal fails the run. */
void receipt_failed(void *user, const struct transfer_item *item, const struct err *err);

/* The item's buffer goes back to where it came from. */
void receipt_ended(void *user, const struct transfer_item *item);

#endif

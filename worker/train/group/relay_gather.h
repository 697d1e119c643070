/* What gathering on the host and gathering on devices share. Only their files include this. */
#ifndef WEIR_WORKER_TRAIN_GROUP_RELAY_GATHER_H
#define WEIR_WORKER_TRAIN_GROUP_RELAY_GATHER_H

#include "worker/train/group/relay_state.h"

/* Of the gatherer's thread. */
struct gatherer {
  struct relay *relay;
  uint64_t step;
  struct buffer **own;            /* [BUCKET_BLOCKS_MAX * own parts]: taken from those held, until sent */
  struct buffer **received;       /* [n_parts]: of one block, by rank, then node */
  struct buffer **landed;         /* [n_parts * BUCKET_BLOCKS_MAX]: what is pushed of a bucket on a device */
  struct collective_work **works; /* [n_works] that were started, and not waited for */
  int n_works;
  struct group_part *merged; /* [n_parts] */
  uint32_t block;            /* that is pushed, or refused */
  bool is_finite;
};

/* Starts an operation among the members; it is waited for by gather_finish_works. */
int gather_start_work(struct gatherer *gatherer, const struct collective_call *call, struct err *err);

/* Waits for all that was started, whatever becomes of it: their memory is in use until then. */
int gather_finish_works(struct gatherer *gatherer, struct err *err);

/* Pushes a part of the gatherer's block to its server; *sum is taken. */
void gather_push(struct gatherer *gatherer, struct tree_node node, bool wait, struct buffer **sum);

/* Ends the run, because a sum of the gatherer's block is not finite. Returns the error. */
int gather_refuse(struct gatherer *gatherer, struct err *err);

/* The bucket's own parts are there: sends them, or gathers and pushes, in the relay's device memory. */
int gather_on_device(struct gatherer *gatherer, const struct bucket *bucket, struct err *err);

#endif

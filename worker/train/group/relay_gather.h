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
  bool *are_unsound;         /* [n_parts]: the sum that is named after the part is not finite */
  bool *are_summed;          /* [n_parts]: it is the sum of several */
  uint32_t block;            /* that is pushed */
};

/* Starts an operation among the members; it is waited for by gather_finish_works. */
int gather_start_work(struct gatherer *gatherer, const struct collective_call *call, struct err *err);

/* Waits for all that was started, whatever becomes of it: their memory is in use until then. */
int gather_finish_works(struct gatherer *gatherer, struct err *err);

/* Pushes what the gatherer's block was gathered to, n sums of gatherer->merged, to the block's server:
   sums[k] is that of merged[k], and is taken. The reply to the last is the next version. A sum that is
   unsound is not pushed: this member computes its microbatches again, each for itself. */
void gather_push(struct gatherer *gatherer, struct buffer **const *sums, int n);

/* The bucket's own parts are there: sends them, or gathers and pushes, in the relay's device memory. */
int gather_on_device(struct gatherer *gatherer, const struct bucket *bucket, struct err *err);

#endif

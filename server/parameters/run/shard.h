/* Shards: the few threads that do a server's arithmetic. Each block belongs to one shard. Whatever is done to
   a block is a job in the shard's queue, so no lock is held while a block is touched. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_SHARD_H
#define WEIR_SERVER_PARAMETERS_RUN_SHARD_H

#include "server/parameters/round/pool.h"

/* Embedded in what is to be done, left alone from post until run is called (which may free it). */
struct job {
  void (*run)(struct job *job); /* on the shard's thread */
  size_t size_bytes;            /* received bytes that wait with it */
  struct job *next;             /* the queue's own */
};

struct shard;

/* What the blocks of a server's shards may take together. */
struct shard_budgets {
  struct budget parts; /* buffers of parts that steps wait with */
  struct budget calls; /* calls that wait for a version */
};

/* budgets: outlives every run. */
struct shard *shard_new(struct shard_budgets *budgets);
struct shard_budgets *shard_budgets(const struct shard *shard);
/* Waits until what was posted before has run. Not from a job. */
void shard_settle(struct shard *shard);
/* Waits for what was posted, ends the thread. Jobs may post to other shards: before any of these is freed,
   runs are unloaded, and then all shards settled. NULL is ignored. */
void shard_free(struct shard *shard);

/* Queues a job; jobs run in the order posted. Any thread, never blocks. Errors: BUSY when too many jobs or
   bytes wait; nothing happens then. */
int shard_offer(struct shard *shard, struct job *job);

/* Likewise for what must not be lost and is bounded by other means: never BUSY. */
void shard_post(struct shard *shard, struct job *job);

#endif

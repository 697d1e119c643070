/* Shards: the few threads that do a server's arithmetic. Each block belongs to one shard. Whatever is done to
   a block is a job in its run's queue at the shard, so no lock is held while a block is touched. The queues
   of the runs take turns by the time that their jobs take (fair_queue.h), so that a run that bursts does not
   hold up another one's step. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_SHARD_H
#define WEIR_SERVER_PARAMETERS_RUN_SHARD_H

#include "server/parameters/round/pool.h"
#include "server/parameters/run/fair_queue.h"

struct shard;

/* What the blocks of a server's shards may take together. */
struct shard_budgets {
  struct budget parts; /* buffers of parts that steps wait with */
  struct budget calls; /* calls that wait for a version */
};

/* budgets: outlives every run. */
struct shard *shard_new(struct shard_budgets *budgets);
struct shard_budgets *shard_budgets(const struct shard *shard);
/* Waits until no job is left. Not from a job. */
void shard_settle(struct shard *shard);
/* Waits for what was posted, ends the thread. Jobs may post to other shards: before any of these is freed,
   runs are unloaded, and then all shards settled. NULL is ignored. */
void shard_free(struct shard *shard);

/* The queue of a run at the shard, the caller's memory. `close` when it has no jobs; any thread, also from
   its last job. */
void shard_open_queue(struct shard *shard, struct job_queue *queue, double weight);
void shard_close_queue(struct job_queue *queue);
/* What its jobs have taken so far. Any thread. */
uint64_t shard_served_ns(struct job_queue *queue);

/* Queues a job; the jobs of a queue run in the order posted. Any thread, never blocks. Errors: BUSY when too
   many jobs or bytes wait in that queue; nothing happens then. */
int shard_offer(struct job_queue *queue, struct job *job);

/* Likewise for what must not be lost and is bounded by other means: never BUSY. */
void shard_post(struct job_queue *queue, struct job *job);

#endif

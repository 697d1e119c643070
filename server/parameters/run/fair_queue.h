/* Whose job is next, by start-time fair queueing (Goyal, Vin and Cheng, 1996). Each run has a queue of its
   own. The queue whose start tag is the lowest is served, and its tag then grows by what the job took,
   divided by the weight. So queues that have jobs share the time by weight; what a job takes need not be
   known before it has run. A queue that was empty continues at the tag of the one in service: it is served
   next, and has saved nothing up. No clock, no lock and no thread of its own. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_FAIR_QUEUE_H
#define WEIR_SERVER_PARAMETERS_RUN_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in what is to be done, left alone from post until run is called (which may free it). */
struct job {
  void (*run)(struct job *job); /* on the shard's thread */
  size_t size_bytes;            /* received bytes that wait with it */
  struct job *next;             /* the queue's own */
};

/* Jobs that are run in the order in which they were added. */
struct job_queue {
  struct shard *shard; /* whose it is */
  double weight;       /* above 0 */
  struct job *first, **last;
  size_t n_jobs, size_bytes;
  double start_ns;        /* its tag, in virtual time */
  uint64_t served_ns;     /* what its jobs took, all together */
  struct job_queue *next; /* among those that have jobs */
};

struct fair_queue {
  struct job_queue *first, **last; /* that have jobs, in the order in which they came to have some */
  struct job_queue *served;        /* whose job was taken last; NULL: it is gone, or there was none */
  double now_ns;                   /* virtual time: the tag of the queue that was served last */
};

void fair_queue_init(struct fair_queue *fair);

void job_queue_init(struct job_queue *queue, struct shard *shard, double weight);

void fair_queue_add(struct fair_queue *fair, struct job_queue *queue, struct job *job);
/* Takes the next job out; NULL: there is none. */
struct job *fair_queue_take(struct fair_queue *fair);
/* What the job took that was taken last; before the next one is. */
void fair_queue_charge(struct fair_queue *fair, uint64_t ns);
/* The queue has no jobs and will have none: its memory may go, also while its last job runs. */
void fair_queue_remove(struct fair_queue *fair, const struct job_queue *queue);

#endif

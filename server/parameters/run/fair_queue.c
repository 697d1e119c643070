/* Start-time fair queueing. */
#include "server/parameters/run/fair_queue.h"

#include "common/base/err.h"

void fair_queue_init(struct fair_queue *fair) {
  *fair = (struct fair_queue){0};
  fair->last = &fair->first;
}

void job_queue_init(struct job_queue *queue, struct shard *shard, double weight) {
  CHECK(weight > 0);
  *queue = (struct job_queue){.shard = shard, .weight = weight};
  queue->last = &queue->first;
}

static void fair_queue_enter(struct fair_queue *fair, struct job_queue *queue) {
  if (queue->start_ns < fair->now_ns)
    queue->start_ns = fair->now_ns;
  queue->next = NULL;
  *fair->last = queue;
  fair->last = &queue->next;
}

void fair_queue_add(struct fair_queue *fair, struct job_queue *queue, struct job *job) {
  if (!queue->first)
    fair_queue_enter(fair, queue);
  job->next = NULL;
  *queue->last = job;
  queue->last = &job->next;
  queue->n_jobs++;
  queue->size_bytes += job->size_bytes;
}

/* Where the list has the queue with the lowest tag; of several, the one that has waited longest. */
static struct job_queue **fair_queue_find(struct fair_queue *fair) {
  struct job_queue **lowest = &fair->first;
  for (struct job_queue **link = lowest; *link; link = &(*link)->next)
    if ((*link)->start_ns < (*lowest)->start_ns)
      lowest = link;
  return lowest;
}

static void fair_queue_leave(struct fair_queue *fair, struct job_queue **link) {
  *link = (*link)->next;
  if (!*link)
    fair->last = link;
}

struct job *fair_queue_take(struct fair_queue *fair) {
  struct job_queue **link = fair_queue_find(fair), *queue = *link;
  struct job *job;
  if (!queue)
    return NULL;
  job = queue->first;
  queue->first = job->next;
  queue->n_jobs--;
  queue->size_bytes -= job->size_bytes;
  if (!queue->first) {
    queue->last = &queue->first;
    fair_queue_leave(fair, link);
  }
  fair->served = queue;
  fair->now_ns = queue->start_ns;
  return job;
}

void fair_queue_charge(struct fair_queue *fair, uint64_t ns) {
  struct job_queue *queue = fair->served;
  if (!queue)
    return;
  queue->served_ns += ns;
  queue->start_ns += (double)ns / queue->weight;
}

void fair_queue_remove(struct fair_queue *fair, const struct job_queue *queue) {
  CHECK(!queue->first);
  if (fair->served == queue)
    fair->served = NULL;
}

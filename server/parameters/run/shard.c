/* Shards: threads with queues of jobs. */
#include "server/parameters/run/shard.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/metrics/metric.h"
#include "common/trace/trace.h"

/* Of each run. */
enum { JOBS_MAX = 4096, JOB_BYTES_MAX = 128 * 1024 * 1024 };

struct shard {
  pthread_t thread;
  struct shard_budgets *budgets;
  pthread_mutex_t lock; /* what follows, and the queues */
  pthread_cond_t posted, settled;
  struct fair_queue queues;
  bool is_busy; /* a job runs */
  bool is_stopping;
};

static void *shard_main(void *argument);

struct shard *shard_new(struct shard_budgets *budgets) {
  struct shard *shard = mem_new(sizeof *shard);
  shard->budgets = budgets;
  fair_queue_init(&shard->queues);
  pthread_mutex_init(&shard->lock, NULL);
  pthread_cond_init(&shard->posted, NULL);
  pthread_cond_init(&shard->settled, NULL);
  CHECK(pthread_create(&shard->thread, NULL, shard_main, shard) == 0);
  return shard;
}

struct shard_budgets *shard_budgets(const struct shard *shard) {
  return shard->budgets;
}

void shard_settle(struct shard *shard) {
  pthread_mutex_lock(&shard->lock);
  while (shard->queues.first || shard->is_busy)
    pthread_cond_wait(&shard->settled, &shard->lock);
  pthread_mutex_unlock(&shard->lock);
}

void shard_free(struct shard *shard) {
  if (!shard)
    return;
  pthread_mutex_lock(&shard->lock);
  shard->is_stopping = true;
  pthread_cond_signal(&shard->posted);
  pthread_mutex_unlock(&shard->lock);
  pthread_join(shard->thread, NULL);
  pthread_cond_destroy(&shard->settled);
  pthread_cond_destroy(&shard->posted);
  pthread_mutex_destroy(&shard->lock);
  free(shard);
}

void shard_open_queue(struct shard *shard, struct job_queue *queue, double weight) {
  job_queue_init(queue, shard, weight);
}

void shard_close_queue(struct job_queue *queue) {
  struct shard *shard = queue->shard;
  pthread_mutex_lock(&shard->lock);
  fair_queue_remove(&shard->queues, queue);
  pthread_mutex_unlock(&shard->lock);
}

uint64_t shard_served_ns(struct job_queue *queue) {
  uint64_t served_ns;
  pthread_mutex_lock(&queue->shard->lock);
  served_ns = queue->served_ns;
  pthread_mutex_unlock(&queue->shard->lock);
  return served_ns;
}

static void shard_add_locked(struct job_queue *queue, struct job *job) {
  fair_queue_add(&queue->shard->queues, queue, job);
  pthread_cond_signal(&queue->shard->posted);
}

int shard_offer(struct job_queue *queue, struct job *job) {
  struct shard *shard = queue->shard;
  bool is_full;
  pthread_mutex_lock(&shard->lock);
  is_full = queue->n_jobs >= JOBS_MAX || queue->size_bytes + job->size_bytes > JOB_BYTES_MAX;
  if (!is_full)
    shard_add_locked(queue, job);
  pthread_mutex_unlock(&shard->lock);
  return is_full ? ERR_BUSY : 0;
}

void shard_post(struct job_queue *queue, struct job *job) {
  struct shard *shard = queue->shard;
  pthread_mutex_lock(&shard->lock);
  shard_add_locked(queue, job);
  pthread_mutex_unlock(&shard->lock);
}

/* NULL: the shard stops. */
static struct job *shard_wait_locked(struct shard *shard) {
  struct job *job;
  while (!(job = fair_queue_take(&shard->queues)) && !shard->is_stopping) {
    pthread_cond_broadcast(&shard->settled);
    pthread_cond_wait(&shard->posted, &shard->lock);
  }
  return job;
}

static void *shard_main(void *argument) {
  struct shard *shard = argument;
  struct job *job;
  float_setting_require("shard");
  trace_thread("shard", 0);
  pthread_mutex_lock(&shard->lock);
  while ((job = shard_wait_locked(shard))) {
    uint64_t begin_ns = clock_now_ns(), taken_ns;
    shard->is_busy = true;
    pthread_mutex_unlock(&shard->lock);
    job->run(job);
    pthread_mutex_lock(&shard->lock);
    shard->is_busy = false;
    taken_ns = clock_now_ns() - begin_ns;
    fair_queue_charge(&shard->queues, taken_ns);
    metric_add(METRIC_SHARD_SECONDS, taken_ns);
  }
  pthread_mutex_unlock(&shard->lock);
  return NULL;
}

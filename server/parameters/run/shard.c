/* Shards: threads with a queue of jobs. */
#include "server/parameters/run/shard.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/base/err.h"
#include "common/base/memory.h"

enum { JOBS_MAX = 4096, JOB_BYTES_MAX = 128 * 1024 * 1024 };

struct shard {
  pthread_t thread;
  struct shard_budgets *budgets;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t posted;
  struct job *first, **last;
  size_t n_jobs, size_bytes;
  bool is_stopping;
};

static void *shard_main(void *argument);

struct shard *shard_new(struct shard_budgets *budgets) {
  struct shard *shard = mem_new(sizeof *shard);
  shard->last = &shard->first;
  shard->budgets = budgets;
  pthread_mutex_init(&shard->lock, NULL);
  pthread_cond_init(&shard->posted, NULL);
  CHECK(pthread_create(&shard->thread, NULL, shard_main, shard) == 0);
  return shard;
}

struct shard_budgets *shard_budgets(const struct shard *shard) {
  return shard->budgets;
}

struct settling {
  struct job job;
  sem_t is_over;
};

static void settling_run(struct job *job) {
  sem_post(&((struct settling *)job)->is_over);
}

void shard_settle(struct shard *shard) {
  struct settling settling = {.job = {.run = settling_run}};
  sem_init(&settling.is_over, 0, 0);
  shard_post(shard, &settling.job);
  while (sem_wait(&settling.is_over)) /* a signal came */
    continue;
  sem_destroy(&settling.is_over);
}

void shard_free(struct shard *shard) {
  if (!shard)
    return;
  pthread_mutex_lock(&shard->lock);
  shard->is_stopping = true;
  pthread_cond_signal(&shard->posted);
  pthread_mutex_unlock(&shard->lock);
  pthread_join(shard->thread, NULL);
  pthread_cond_destroy(&shard->posted);
  pthread_mutex_destroy(&shard->lock);
  free(shard);
}

static void shard_append_locked(struct shard *shard, struct job *job) {
  job->next = NULL;
  *shard->last = job;
  shard->last = &job->next;
  shard->n_jobs++;
  shard->size_bytes += job->size_bytes;
  pthread_cond_signal(&shard->posted);
}

int shard_offer(struct shard *shard, struct job *job) {
  bool is_full;
  pthread_mutex_lock(&shard->lock);
  is_full = shard->n_jobs >= JOBS_MAX || shard->size_bytes + job->size_bytes > JOB_BYTES_MAX;
  if (!is_full)
    shard_append_locked(shard, job);
  pthread_mutex_unlock(&shard->lock);
  return is_full ? ERR_BUSY : 0;
}

void shard_post(struct shard *shard, struct job *job) {
  pthread_mutex_lock(&shard->lock);
  shard_append_locked(shard, job);
  pthread_mutex_unlock(&shard->lock);
}

static void *shard_main(void *argument) {
  struct shard *shard = argument;
  struct job *job;
  float_setting_require("shard");
  pthread_mutex_lock(&shard->lock);
  for (;;) {
    while (!shard->first && !shard->is_stopping)
      pthread_cond_wait(&shard->posted, &shard->lock);
    job = shard->first;
    if (!job)
      break;
    shard->first = job->next;
    if (!shard->first)
      shard->last = &shard->first;
    shard->n_jobs--;
    shard->size_bytes -= job->size_bytes;
    pthread_mutex_unlock(&shard->lock);
    job->run(job);
    pthread_mutex_lock(&shard->lock);
  }
  pthread_mutex_unlock(&shard->lock);
  return NULL;
}

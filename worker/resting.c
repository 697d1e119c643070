/* Runs that are loaded and not computed. */
#include "worker/resting.h"

#include <string.h>

#include "worker/train/run.h"

void resting_init(struct resting *resting) {
  *resting = (struct resting){0};
  pthread_mutex_init(&resting->lock, NULL);
}

void resting_fini(struct resting *resting) {
  pthread_mutex_destroy(&resting->lock);
}

static struct run *take_locked(struct resting *resting, int at) {
  struct run *run = resting->runs[at];
  resting->n--;
  memmove(resting->runs + at, resting->runs + at + 1, (size_t)(resting->n - at) * sizeof(struct run *));
  return run;
}

struct run *resting_add(struct resting *resting, struct run *run) {
  struct run *oldest = NULL;
  pthread_mutex_lock(&resting->lock);
  if (resting->n == RESTING_MAX)
    oldest = take_locked(resting, 0);
  resting->runs[resting->n++] = run;
  pthread_mutex_unlock(&resting->lock);
  return oldest;
}

struct run *resting_take(struct resting *resting, const char *id) {
  struct run *run = NULL;
  pthread_mutex_lock(&resting->lock);
  for (int i = 0; i < resting->n && !run; i++)
    if (strcmp(run_id(resting->runs[i]), id) == 0)
      run = take_locked(resting, i);
  pthread_mutex_unlock(&resting->lock);
  return run;
}

struct run *resting_take_oldest(struct resting *resting) {
  struct run *run;
  pthread_mutex_lock(&resting->lock);
  run = resting->n > 0 ? take_locked(resting, 0) : NULL;
  pthread_mutex_unlock(&resting->lock);
  return run;
}

bool resting_takes_much(uint64_t own_bytes, uint64_t available_bytes) {
  return available_bytes / 3 < own_bytes;
}

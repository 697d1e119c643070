/* Runs that are loaded and not computed. */
#include "worker/resting.h"

#include <string.h>

#include "common/base/memory.h"
#include "worker/train/run.h"

enum { OVER_KEPT_S = 60, WAITING_KEPT_S = 1800 };

void resting_init(struct resting *resting) {
  *resting = (struct resting){0};
  pthread_mutex_init(&resting->lock, NULL);
}

void resting_fini(struct resting *resting) {
  pthread_mutex_destroy(&resting->lock);
}

static uint64_t due_ns(const struct rest *rest) {
  return rest->since_ns + (rest->is_over ? OVER_KEPT_S : WAITING_KEPT_S) * UINT64_C(1000000000);
}

static struct run *take_locked(struct resting *resting, int at) {
  struct run *run = resting->rests[at].run;
  resting->n--;
  memmove(resting->rests + at, resting->rests + at + 1, (size_t)(resting->n - at) * sizeof *resting->rests);
  return run;
}

static struct run *take_any_locked(struct resting *resting) {
  for (int i = 0; i < resting->n; i++)
    if (resting->rests[i].is_over)
      return take_locked(resting, i);
  return resting->n > 0 ? take_locked(resting, 0) : NULL;
}

struct run *resting_add(struct resting *resting, struct run *run, bool is_over, uint64_t now_ns) {
  struct run *displaced = NULL;
  pthread_mutex_lock(&resting->lock);
  if (resting->n == RESTING_MAX)
    displaced = take_any_locked(resting);
  resting->rests[resting->n++] = (struct rest){run, is_over, now_ns};
  pthread_mutex_unlock(&resting->lock);
  return displaced;
}

struct run *resting_take(struct resting *resting, const char *id) {
  struct run *run = NULL;
  pthread_mutex_lock(&resting->lock);
  for (int i = 0; i < resting->n && !run; i++)
    if (!resting->rests[i].is_over && strcmp(run_id(resting->rests[i].run), id) == 0)
      run = take_locked(resting, i);
  pthread_mutex_unlock(&resting->lock);
  return run;
}

int resting_ids(struct resting *resting, struct arena *arena, char *ids[RESTING_MAX]) {
  int n = 0;
  pthread_mutex_lock(&resting->lock);
  for (int i = resting->n - 1; i >= 0; i--)
    if (!resting->rests[i].is_over)
      ids[n++] = arena_strdup(arena, run_id(resting->rests[i].run));
  pthread_mutex_unlock(&resting->lock);
  return n;
}

struct run *resting_take_fitting(struct resting *resting, const Weir__LoadRun *load,
                                 const struct data_root *data_root) {
  struct run *run = NULL;
  pthread_mutex_lock(&resting->lock);
  for (int i = 0; i < resting->n && !run; i++)
    if (resting->rests[i].is_over && run_fits(resting->rests[i].run, load, data_root))
      run = take_locked(resting, i);
  pthread_mutex_unlock(&resting->lock);
  return run;
}

struct run *resting_take_any(struct resting *resting) {
  struct run *run;
  pthread_mutex_lock(&resting->lock);
  run = take_any_locked(resting);
  pthread_mutex_unlock(&resting->lock);
  return run;
}

struct run *resting_take_old(struct resting *resting, uint64_t now_ns) {
  struct run *run = NULL;
  pthread_mutex_lock(&resting->lock);
  for (int i = 0; i < resting->n && !run; i++)
    if (now_ns >= due_ns(&resting->rests[i]))
      run = take_locked(resting, i);
  pthread_mutex_unlock(&resting->lock);
  return run;
}

uint64_t resting_due_ns(struct resting *resting) {
  uint64_t first_ns = 0;
  pthread_mutex_lock(&resting->lock);
  for (int i = 0; i < resting->n; i++)
    if (!first_ns || due_ns(&resting->rests[i]) < first_ns)
      first_ns = due_ns(&resting->rests[i]);
  pthread_mutex_unlock(&resting->lock);
  return first_ns;
}

bool resting_takes_much(uint64_t own_bytes, uint64_t available_bytes) {
  return available_bytes / 3 < own_bytes;
}

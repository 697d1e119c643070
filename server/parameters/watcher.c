/* The watcher of late steps. */
#include "server/parameters/watcher.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "server/parameters/load/late.h"

/* LOOKS: so often it looks in the least time that a step is given. */
enum { LOOKS = 4 };

struct watcher {
  struct run_table *runs;
  struct pace_options options;
  pthread_t thread;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  bool has_runs, is_stopping;
};

static void *watcher_main(void *argument);

struct watcher *watcher_start(struct run_table *runs, const struct pace_options *options) {
  struct watcher *watcher = mem_new(sizeof *watcher);
  watcher->runs = runs;
  watcher->options = *options;
  pthread_mutex_init(&watcher->lock, NULL);
  clock_condition_init(&watcher->changed);
  CHECK(pthread_create(&watcher->thread, NULL, watcher_main, watcher) == 0);
  return watcher;
}

void watcher_stop(struct watcher *watcher) {
  if (!watcher)
    return;
  pthread_mutex_lock(&watcher->lock);
  watcher->is_stopping = true;
  pthread_cond_signal(&watcher->changed);
  pthread_mutex_unlock(&watcher->lock);
  pthread_join(watcher->thread, NULL);
  pthread_cond_destroy(&watcher->changed);
  pthread_mutex_destroy(&watcher->lock);
  free(watcher);
}

void watcher_begin(struct watcher *watcher, struct hosted_run *run) {
  pace_tell_anew(&run->pace);
  pthread_mutex_lock(&watcher->lock);
  watcher->has_runs = true;
  pthread_cond_signal(&watcher->changed);
  pthread_mutex_unlock(&watcher->lock);
}

static void watcher_look_at(const struct watcher *watcher, struct hosted_run *run) {
  struct pace_late late;
  if (pace_is_late(&run->pace, &watcher->options, clock_now_ns(), &late))
    hosted_run_tell_late(run, &late);
}

/* True if there is a run that is not at its end. */
static bool watcher_look(const struct watcher *watcher) {
  struct hosted_run **runs;
  bool has_runs = false;
  int n = run_table_list(watcher->runs, &runs);
  for (int i = 0; i < n; i++) {
    if (!hosted_run_is_finished(runs[i])) {
      has_runs = true;
      watcher_look_at(watcher, runs[i]);
    }
    hosted_run_put(runs[i]);
  }
  free(runs);
  return has_runs;
}

static void watcher_pause_locked(struct watcher *watcher) {
  int pause_ms = (int)(watcher->options.least_ms / LOOKS);
  struct timespec until = clock_after_ms(pause_ms > 0 ? pause_ms : 1);
  while (!watcher->is_stopping && pthread_cond_timedwait(&watcher->changed, &watcher->lock, &until) == 0)
    continue;
}

static void *watcher_main(void *argument) {
  struct watcher *watcher = argument;
  pthread_mutex_lock(&watcher->lock);
  while (!watcher->is_stopping) {
    bool has_runs;
    if (!watcher->has_runs) {
      pthread_cond_wait(&watcher->changed, &watcher->lock);
      continue;
    }
    watcher->has_runs = false; /* a run that comes meanwhile says so */
    pthread_mutex_unlock(&watcher->lock);
    has_runs = watcher_look(watcher);
    pthread_mutex_lock(&watcher->lock);
    watcher->has_runs |= has_runs;
    if (watcher->has_runs)
      watcher_pause_locked(watcher);
  }
  pthread_mutex_unlock(&watcher->lock);
  return NULL;
}

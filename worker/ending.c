/* Ending runs, one after another. */
#include "worker/ending.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/trace/trace.h"
#include "worker/train/run.h"

/* A run that is to end. */
struct end {
  struct run *run;
  struct end *next;
};

struct ending {
  pthread_t thread;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct end *first, **last; /* the first is the one that is being stopped */
  bool is_over;
};

static void *ending_main(void *argument);

struct ending *ending_new(void) {
  struct ending *ending = mem_new(sizeof *ending);
  pthread_mutex_init(&ending->lock, NULL);
  pthread_cond_init(&ending->changed, NULL);
  ending->last = &ending->first;
  CHECK(pthread_create(&ending->thread, NULL, ending_main, ending) == 0);
  return ending;
}

void ending_free(struct ending *ending) {
  pthread_mutex_lock(&ending->lock);
  ending->is_over = true;
  pthread_cond_broadcast(&ending->changed);
  pthread_mutex_unlock(&ending->lock);
  pthread_join(ending->thread, NULL);
  pthread_cond_destroy(&ending->changed);
  pthread_mutex_destroy(&ending->lock);
  free(ending);
}

void ending_add(struct ending *ending, struct run *run) {
  struct end *end;
  if (!run)
    return;
  end = mem_new(sizeof *end);
  end->run = run;
  pthread_mutex_lock(&ending->lock);
  *ending->last = end;
  ending->last = &end->next;
  pthread_cond_broadcast(&ending->changed);
  pthread_mutex_unlock(&ending->lock);
}

bool ending_wait(struct ending *ending, const struct run *run) {
  bool is_any = false;
  pthread_mutex_lock(&ending->lock);
  while (ending->first && ending->first->run != run) {
    is_any = true;
    pthread_cond_wait(&ending->changed, &ending->lock);
  }
  pthread_mutex_unlock(&ending->lock);
  return is_any;
}

/* A thread that hangs cannot be ended, nor its memory freed: as with a device that has failed, only a new
   process could compute again. Whoever watches over this one starts it. */
void ending_check(const struct run *run, bool has_ended) {
  if (has_ended)
    return;
  log_event(LOG_ERROR, "worker", "hung",
            "run=%s: an execution does not come back, so this process ends: start it again", run_id(run));
  trace_close();
  _exit(EXIT_FAILURE);
}

static void *ending_main(void *argument) {
  struct ending *ending = argument;
  pthread_mutex_lock(&ending->lock);
  while (!ending->is_over || ending->first) {
    struct end *end = ending->first;
    if (!end) {
      pthread_cond_wait(&ending->changed, &ending->lock);
      continue;
    }
    pthread_mutex_unlock(&ending->lock);
    ending_check(end->run, run_stop(end->run));
    pthread_mutex_lock(&ending->lock);
    ending->first = end->next;
    if (!ending->first)
      ending->last = &ending->first;
    pthread_cond_broadcast(&ending->changed);
    free(end);
  }
  pthread_mutex_unlock(&ending->lock);
  return NULL;
}

/* A thread that runs what others give it. */
#include "server/coordinator/shell/threads/tasks.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/memory.h"

struct task_thread {
  struct task_thread_options options;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct task *first, **end;
  int count;
  bool is_stopping;
};

static void *thread_main(void *argument);
static void wait_for_task_locked(struct task_thread *thread, int wait_ms);

struct task_thread *task_thread_start(const struct task_thread_options *options) {
  struct task_thread *thread = mem_new(sizeof *thread);
  thread->options = *options;
  thread->end = &thread->first;
  pthread_mutex_init(&thread->lock, NULL);
  clock_condition_init(&thread->changed);
  CHECK(pthread_create(&thread->thread, NULL, thread_main, thread) == 0);
  return thread;
}

static void add_locked(struct task_thread *thread, struct task *task) {
  task->next = NULL;
  *thread->end = task;
  thread->end = &task->next;
  thread->count++;
  pthread_cond_signal(&thread->changed);
}

bool task_offer(struct task_thread *thread, struct task *task) {
  bool has_room;
  pthread_mutex_lock(&thread->lock);
  has_room = thread->count < thread->options.capacity;
  if (has_room)
    add_locked(thread, task);
  pthread_mutex_unlock(&thread->lock);
  return has_room;
}

void task_post(struct task_thread *thread, struct task *task) {
  pthread_mutex_lock(&thread->lock);
  add_locked(thread, task);
  pthread_mutex_unlock(&thread->lock);
}

void task_thread_stop(struct task_thread *thread) {
  if (!thread)
    return;
  pthread_mutex_lock(&thread->lock);
  thread->is_stopping = true;
  pthread_cond_signal(&thread->changed);
  pthread_mutex_unlock(&thread->lock);
  pthread_join(thread->thread, NULL);
  pthread_cond_destroy(&thread->changed);
  pthread_mutex_destroy(&thread->lock);
  free(thread);
}

static void *thread_main(void *argument) {
  struct task_thread *thread = argument;
  int wait_ms = -1;
  float_setting_require("coordinator");
  pthread_mutex_lock(&thread->lock);
  for (;;) {
    struct task *task, *next;
    if (!thread->first && !thread->is_stopping)
      wait_for_task_locked(thread, wait_ms);
    task = thread->first;
    if (!task && thread->is_stopping)
      break;
    thread->first = NULL;
    thread->end = &thread->first;
    thread->count = 0;
    pthread_mutex_unlock(&thread->lock);
    for (; task; task = next) {
      next = task->next;
      task->run(task);
    }
    if (thread->options.on_turn)
      wait_ms = thread->options.on_turn(thread->options.user);
    pthread_mutex_lock(&thread->lock);
  }
  pthread_mutex_unlock(&thread->lock);
  return NULL;
}

static void wait_for_task_locked(struct task_thread *thread, int wait_ms) {
  struct timespec until = clock_after_ms(wait_ms);
  if (wait_ms < 0) {
    pthread_cond_wait(&thread->changed, &thread->lock);
    return;
  }
  pthread_cond_timedwait(&thread->changed, &thread->lock, &until);
}

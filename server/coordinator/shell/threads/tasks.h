/* A thread that runs tasks from other threads, one after the other. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_THREADS_TASKS_H
#define WEIR_SERVER_COORDINATOR_SHELL_THREADS_TASKS_H

#include <stdbool.h>

/* Embedded in the struct that it works on, which `run` may free. */
struct task {
  void (*run)(struct task *task);
  struct task *next;
};

#define TASK_OWNER(task, type, field) ((type *)(void *)((char *)(task)-offsetof(type, field)))

struct task_thread;

struct task_thread_options {
  int capacity; /* tasks that may wait */
  /* After every batch of tasks, and when a wait is over: returns for how many milliseconds to wait for the
     next task, below 0 for ever. On the thread. May be NULL. */
  int (*on_turn)(void *user);
  void *user;
};

struct task_thread *task_thread_start(const struct task_thread_options *options);

/* Any thread, never blocks. False when `capacity` tasks wait: the task is still the caller's. */
bool task_offer(struct task_thread *thread, struct task *task);

/* As task_offer, but always taken: for the few that must not be lost and whose number is bounded elsewhere.
 */
void task_post(struct task_thread *thread, struct task *task);

/* Runs the tasks that wait, then joins the thread and frees it. By then only its own tasks may add others.
   NULL is ignored. */
void task_thread_stop(struct task_thread *thread);

#endif

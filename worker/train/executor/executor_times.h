/* What an executor has done of its time, from its first task to its last: computed, waited for weights,
   waited for data. What is left it had no task. Pure; its own thread's. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_EXECUTOR_TIMES_H
#define WEIR_WORKER_TRAIN_EXECUTOR_EXECUTOR_TIMES_H

#include <stddef.h>
#include <stdint.h>

struct executor_times {
  uint64_t began_ns, ended_ns;  /* 0: it had no task yet */
  uint64_t task_ns;             /* at tasks, waits within them included */
  uint64_t weights_ns, data_ns; /* of that, waits */
};

/* It was at a task. */
void executor_times_add(struct executor_times *times, uint64_t begin_ns, uint64_t end_ns);
uint64_t executor_times_computed_ns(const struct executor_times *times);

/* In words, as parts of all of its time. */
enum { EXECUTOR_TIMES_SIZE = 64 };
void executor_times_text(const struct executor_times *times, char text[EXECUTOR_TIMES_SIZE]);

#endif

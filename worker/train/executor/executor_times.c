/* An executor's time. */
#include "worker/train/executor/executor_times.h"

#include <stdio.h>

void executor_times_add(struct executor_times *times, uint64_t begin_ns, uint64_t end_ns) {
  if (times->began_ns == 0)
    times->began_ns = begin_ns;
  times->ended_ns = end_ns;
  times->task_ns += end_ns - begin_ns;
}

uint64_t executor_times_computed_ns(const struct executor_times *times) {
  uint64_t waited_ns = times->weights_ns + times->data_ns;
  return times->task_ns > waited_ns ? times->task_ns - waited_ns : 0;
}

static double percent_of(const struct executor_times *times, uint64_t part_ns) {
  uint64_t whole_ns = times->ended_ns - times->began_ns;
  return whole_ns > 0 ? 100.0 * (double)part_ns / (double)whole_ns : 0.0;
}

void executor_times_text(const struct executor_times *times, char text[EXECUTOR_TIMES_SIZE]) {
  snprintf(text, EXECUTOR_TIMES_SIZE, "computed %.0f %%, waited for weights %.0f %%, for data %.0f %%",
           percent_of(times, executor_times_computed_ns(times)), percent_of(times, times->weights_ns),
           percent_of(times, times->data_ns));
}

/* What an event costs the coordinator's core, by the number of members: CPU time, medians of rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_crowd.h"

enum { SERVERS = 10, ROUNDS = 9, EVENTS = 2000, TICKS = 50 };

static double cpu_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, compare);
  return values[ROUNDS / 2];
}

/* Each round: heartbeats of all in turn, as many step reports, ticks, and a worker that leaves. */
static void measure(int workers) {
  double beats[ROUNDS], steps[ROUNDS], ticks[ROUNDS], leaves[ROUNDS];
  struct crowd crowd;
  uint64_t step = 0, view_bytes = 0;
  crowd_init(&crowd, SERVERS, workers);
  for (int round = 0; round < ROUNDS; round++) {
    double begin_us = cpu_us();
    for (uint64_t i = 0; i < EVENTS; i++)
      crowd_beats(&crowd, SERVERS + 1 + i % (uint64_t)(workers - ROUNDS), 10 * (uint64_t)round, 0.1 * round);
    beats[round] = (cpu_us() - begin_us) / EVENTS;
    begin_us = cpu_us();
    for (int i = 0; i < EVENTS; i++)
      crowd_reports_step(&crowd, step++);
    steps[round] = (cpu_us() - begin_us) / EVENTS;
    begin_us = cpu_us();
    for (int i = 0; i < TICKS; i++)
      crowd_ticks(&crowd, 10);
    ticks[round] = (cpu_us() - begin_us) / TICKS;
    begin_us = cpu_us();
    crowd_leaves(&crowd, (uint64_t)(SERVERS + workers - round));
    leaves[round] = cpu_us() - begin_us;
    view_bytes = crowd.view_bytes;
  }
  printf(
      "%5d workers: heartbeat %.1f us, step report %.1f us, tick %.1f us, a worker leaves %.0f us, its views "
      "%.1f kB\n",
      workers, median(beats), median(steps), median(ticks), median(leaves), (double)view_bytes / 1e3);
  crowd_fini(&crowd);
}

int main(void) {
  const int workers[] = {10, 100, 1000};
  log_set_level(LOG_ERROR);
  for (int i = 0; i < 3; i++)
    measure(workers[i]);
  return 0;
}

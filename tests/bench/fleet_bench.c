/* What an event costs the coordinator's core where many runs wait for a fleet that others have, and what the
   history of a long run takes: CPU time, medians of rounds. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_fleet.h"

enum { SERVERS = 10, WORKERS = 100, QUEUED = 500, ROUNDS = 25, EVENTS = 20, TO_COME = 1000000 };

static const uint64_t histories[] = {1000000, 10000000}; /* steps */

enum {
  KIND_HEARTBEAT,
  KIND_STEP_REPORT,
  KIND_TICK,
  KIND_SUBMISSION,
  KIND_CANCEL,
  KIND_JOIN,
  KIND_LEAVE,
  KINDS
};

/* How many run, and what specs say: of those that run, and of those that wait. */
struct mix {
  const char *name;
  int running;
  const char *runs, *waits; /* waits NULL: forks of a version to come wait, of each run that runs some */
  const char *label;        /* of every other worker; NULL: none */
};

static const struct mix mixes[] = {
    {"10 runs of 10 workers, 500 wait for 200", 10, "workers: {max: 10}\n", "workers: {min: 200}\n", NULL},
    {"100 runs of 1 worker, 500 of lower priority wait for one", 100, "workers: {max: 1}\n", "priority: -1\n",
     NULL},
    {"600 runs take turns on 100 workers", 100, "", "", NULL},
    {"10 runs of 10 workers, 500 wait for 60 with a label", 10, "workers: {max: 10}\n",
     "workers: {min: 60, require: {gpu: h200}}\n", "gpu=h200"},
    {"10 runs of 10 workers, 500 forks wait for versions of them", 10, "workers: {max: 10}\n", NULL, NULL},
};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values) {
  qsort(values, ROUNDS, sizeof *values, compare);
  return values[ROUNDS / 2];
}

static void one_more_waits(struct fleet *fleet, const struct mix *mix) {
  if (mix->waits)
    fleet_submits(fleet, mix->waits);
  else
    fleet_forks(fleet, fleet->submitted % mix->running, TO_COME);
}

static void fleet_fill(struct fleet *fleet, const struct mix *mix) {
  fleet_init(fleet);
  for (int i = 0; i < SERVERS; i++)
    fleet_server_joins(fleet);
  for (int i = 0; i < WORKERS; i++)
    fleet_worker_joins(fleet, i % 2 ? mix->label : NULL);
  for (int i = 0; i < mix->running; i++)
    fleet_submits(fleet, mix->runs);
  for (int i = 0; i < QUEUED; i++)
    one_more_waits(fleet, mix);
  for (int i = 0; i < 100; i++) { /* runs let go of workers after steps */
    for (int run = 0; run < mix->running; run++)
      fleet_reports_step(fleet, run);
    fleet_ticks(fleet, 100);
    for (uint64_t key = 1; key <= SERVERS + WORKERS; key++)
      fleet_beats(fleet, key);
  }
}

/* A round: heartbeats, step reports and ticks; a worker that leaves and one that joins, a submission. */
static void measure(const struct mix *mix) {
  double us[KINDS][ROUNDS] = {{0}};
  struct fleet fleet;
  fleet_fill(&fleet, mix);
  for (int round = 0; round < ROUNDS; round++) {
    for (uint64_t i = 0; i < EVENTS; i++) {
      fleet_beats(&fleet, SERVERS + 1 + i);
      us[KIND_HEARTBEAT][round] += fleet.us / EVENTS;
      fleet_reports_step(&fleet, (int)i % mix->running);
      us[KIND_STEP_REPORT][round] += fleet.us / EVENTS;
      fleet_ticks(&fleet, 1);
      us[KIND_TICK][round] += fleet.us / EVENTS;
    }
    fleet_leaves(&fleet, SERVERS + WORKERS - (uint64_t)round);
    us[KIND_LEAVE][round] = fleet.us;
    fleet_worker_joins(&fleet, round % 2 ? NULL : mix->label);
    us[KIND_JOIN][round] = fleet.us;
    one_more_waits(&fleet, mix);
    us[KIND_SUBMISSION][round] = fleet.us;
    fleet_cancels(&fleet, fleet.submitted - 1);
    us[KIND_CANCEL][round] = fleet.us;
  }
  printf("%s (%d run, %d are queued):\n  heartbeat %.1f us, step report %.1f us, tick %.1f us, submission "
         "%.0f us, cancel %.0f us, a "
         "worker leaves %.0f us, joins %.0f us\n",
         mix->name, fleet_count_runs(&fleet, WEIR__RUN_STATE__RUNNING),
         fleet_count_runs(&fleet, WEIR__RUN_STATE__QUEUED), median(us[KIND_HEARTBEAT]),
         median(us[KIND_STEP_REPORT]), median(us[KIND_TICK]), median(us[KIND_SUBMISSION]),
         median(us[KIND_CANCEL]), median(us[KIND_LEAVE]), median(us[KIND_JOIN]));
  fleet_fini(&fleet);
}

static double heap_mb(void) {
  struct mallinfo2 info = mallinfo2();
  return (double)(info.uordblks + info.hblkhd) / 1e6;
}

static void measure_history(void) {
  struct fleet fleet;
  double begin_mb, us = 0;
  uint64_t step = 0;
  fleet_init(&fleet);
  fleet_server_joins(&fleet);
  fleet_worker_joins(&fleet, NULL);
  fleet_submits(&fleet, "");
  begin_mb = heap_mb();
  for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
    for (; step < histories[i]; step++) {
      fleet_reports_step(&fleet, 0);
      us += fleet.us;
    }
    printf("history of a run: %llu steps take %.1f MB; a report took %.1f us\n", (unsigned long long)step,
           heap_mb() - begin_mb, us / (double)step);
  }
  fleet_fini(&fleet);
}

int main(void) {
  log_set_level(LOG_ERROR);
  for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
    measure(&mixes[i]);
  measure_history();
  return 0;
}

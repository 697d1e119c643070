/* What a dashboard costs the coordinator's core: CPU time and bytes of each poll where there are 1,000 runs,
   and of the curves of a long run. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "server/coordinator/overview/series.h"
#include "tests/support/coordinator/core_fleet.h"

enum {
  SERVERS = 10,
  WORKERS = 100,
  RUNS = 1000,
  WAITING = 400,
  POLLS = 25,
  POLL_MS = 2000,
  STEPS_A_POLL = 20
};
enum { WARM_STEPS = 1000, LONG = 1000000, ROUNDS = 25 };

static double cpu_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* As the shell answers: to the bytes that are sent. */
static size_t packed(const ProtobufCMessage *message) {
  size_t bytes = protobuf_c_message_get_packed_size(message);
  uint8_t *data = malloc(bytes);
  CHECK(data);
  protobuf_c_message_pack(message, data);
  free(data);
  return bytes;
}

/* Runs that train on a worker each, others that wait, and the rest, which are over. */
static void fleet_fill(struct fleet *fleet, int running) {
  fleet_init(fleet);
  for (int i = 0; i < SERVERS; i++)
    fleet_server_joins(fleet);
  for (int i = 0; i < WORKERS; i++)
    fleet_worker_joins(fleet, NULL);
  for (int i = 0; i < running; i++)
    fleet_submits(fleet, "workers: {max: 1}\n");
  for (int i = running; i < RUNS; i++) {
    fleet_submits(fleet, "priority: -1\nworkers: {min: 200}\n");
    if (i >= running + WAITING)
      fleet_cancels(fleet, i);
  }
  for (int step = 0; step < WARM_STEPS; step++)
    for (int run = 0; run < running; run++)
      fleet_reports_step(fleet, run);
}

struct poll {
  double us;
  size_t bytes, rows;
};

static struct poll poll_once(struct fleet *fleet, struct overview *overview, uint64_t *cursor) {
  struct arena arena;
  struct overview_question question = {fleet->core, &viewer_of_all, fleet->now_ms, &arena};
  Weir__OverviewRequest request = WEIR__OVERVIEW_REQUEST__INIT;
  Weir__Overview answer;
  struct err err;
  struct poll poll;
  double begin = cpu_us();
  arena_init(&arena);
  request.since = *cursor;
  request.max_rows = OVERVIEW_ROWS_MAX;
  CHECK(overview_answer(overview, &question, &request, &answer, &err) == 0);
  poll.bytes = packed(&answer.base);
  poll.us = cpu_us() - begin;
  poll.rows = answer.n_runs + answer.n_members;
  *cursor = answer.cursor;
  arena_fini(&arena);
  return poll;
}

static void measure_polls(int running) {
  struct fleet fleet;
  struct overview *overview;
  struct poll first, poll, most = {0};
  double us = 0, bytes = 0;
  uint64_t cursor = 0;
  fleet_fill(&fleet, running);
  overview = overview_new(fleet.core, 0);
  overview_tick(overview, fleet.core, fleet.now_ms);
  first = poll_once(&fleet, overview, &cursor);
  for (int i = 0; i < POLLS; i++) {
    for (int step = 0; step < STEPS_A_POLL; step++)
      for (int run = 0; run < running; run++)
        fleet_reports_step(&fleet, run);
    for (uint64_t key = 1; key <= SERVERS + WORKERS; key++)
      fleet_beats(&fleet, key);
    fleet_ticks(&fleet, POLL_MS);
    overview_tick(overview, fleet.core, fleet.now_ms);
    poll = poll_once(&fleet, overview, &cursor);
    us += poll.us / POLLS;
    bytes += (double)poll.bytes / POLLS;
    most = poll.bytes > most.bytes ? poll : most;
  }
  printf("%d runs, %d of which train (%d wait), %d workers: the first answer has %zu rows in %.1f kB and "
         "takes %.1f "
         "ms; a poll has %.1f kB (%.1f at most, %zu rows) and takes %.2f ms, every 2 s %.2f %% of a core\n",
         RUNS, fleet_count_runs(&fleet, WEIR__RUN_STATE__RUNNING),
         fleet_count_runs(&fleet, WEIR__RUN_STATE__QUEUED), WORKERS, first.rows, (double)first.bytes / 1e3,
         first.us / 1e3, bytes / 1e3, (double)most.bytes / 1e3, most.rows, us / 1e3,
         us / 1e3 / POLL_MS * 100);
  overview_free(overview);
  fleet_fini(&fleet);
}

static void measure_curves(void) {
  static const uint64_t since[] = {0, LONG / 2, LONG - 20};
  struct fleet fleet;
  char id[64];
  fleet_init(&fleet);
  fleet_server_joins(&fleet);
  fleet_worker_joins(&fleet, NULL);
  fleet_submits(&fleet, "");
  for (int step = 0; step < LONG; step++)
    fleet_reports_step(&fleet, 0);
  for (size_t i = 0; i < sizeof since / sizeof *since; i++) {
    double begin = cpu_us();
    size_t bytes = 0, points = 0;
    for (int round = 0; round < ROUNDS; round++) {
      struct arena arena;
      struct overview_question question = {fleet.core, &viewer_of_all, fleet.now_ms, &arena};
      Weir__SeriesRequest request = WEIR__SERIES_REQUEST__INIT;
      Weir__Series series;
      struct err err;
      arena_init(&arena);
      request.since = since[i];
      CHECK(series_answer(&question, fleet_run(0, id), &request, &series, &err) == 0);
      bytes = packed(&series.base);
      points = series.n_curves ? series.curves[0]->n_steps : 0;
      arena_fini(&arena);
    }
    printf("curves of a run of %d steps from step %llu on: %zu points each, %.1f kB, %.0f us\n", LONG,
           (unsigned long long)since[i], points, (double)bytes / 1e3, (cpu_us() - begin) / ROUNDS);
  }
  fleet_fini(&fleet);
}

int main(void) {
  log_set_level(LOG_ERROR);
  measure_polls(10);
  measure_polls(100);
  measure_curves();
  return 0;
}

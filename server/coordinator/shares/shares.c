/* How much of a run's work each worker has, by how fast they compute. */
#include "server/coordinator/shares/shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/compress/compression.h"
#include "server/coordinator/shares/assign.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

/* A worker that has no microbatches because it is slow is not measured any more. It is tried again after a
   minute, then after twice as long each time. */
enum { LOOK_MS = 1000, IDLE_MS = 60000, IDLE_MS_MAX = 16 * IDLE_MS };

/* What other shares must promise, and for how long. Microbatches that move may be computed twice, so speeds
   that drift a little change nothing. Other shares in a group are another group: its members leave the run,
   meet and pull all weights again. That is worth only what lasts: the threshold is three times as high there,
   and the time ten times as long. */
struct threshold {
  double gain; /* of the time of a step */
  uint64_t lasts_ms;
};
static const struct threshold alone = {0.1, 3000}, in_groups = {0.3, 30000};

/* Counters that cannot be change nothing. */
static void take_teams(struct seat *seat, const Weir__TeamCounters *counters) {
  struct teams *teams = counters ? teams_of(counters, seat->worker->executors) : NULL;
  if (!teams)
    return;
  free(seat->teams);
  seat->teams = teams;
}

void coordinator_count(const struct coordinator *coordinator, const struct member *worker,
                       const Weir__RunCounters *counters) {
  struct seat *seat = coordinator_seat(worker, counters->run);
  if (!seat || counters->incarnation != seat->run->incarnation)
    return;
  speed_add(seat->speed, worker->executors, coordinator->now_ms, counters->computed, counters->busy_seconds);
  take_teams(seat, counters->teams);
  if (counters->received_bytes < seat->following.bytes) /* it counts anew */
    seat->following.bytes = 0;
  seat->received_bytes = counters->received_bytes;
}

struct assign_worker *coordinator_speeds(struct arena *arena, struct seat *const *seats, int n) {
  struct assign_worker *list = arena_new(arena, (size_t)n * sizeof *list);
  double sum = 0;
  int known = 0;
  for (int i = 0; i < n; i++) {
    uint32_t executors = seats[i]->run->plan.replicas ? 1 : seats[i]->executors; /* all are at one replica */
    list[i] = (struct assign_worker){executors, speed_of(seats[i]->speed, seats[i]->executors)};
    if (!(list[i].speed > 0))
      continue;
    sum += list[i].speed / executors;
    known++;
  }
  for (int i = 0; i < n; i++)
    if (isnan(list[i].speed))
      list[i].speed = list[i].executors * (known ? sum / known : 1);
  return list;
}

static void give_share(const struct coordinator *coordinator, struct seat *seat, struct range microbatches,
                       struct range eval_chunks) {
  bool is_idle = microbatches.begin == microbatches.end;
  bool has_speed = speed_of(seat->speed, seat->executors) > 0;
  seat->microbatches = microbatches;
  seat->eval_chunks = eval_chunks;
  seat->is_spare = is_idle && !coordinator_is_staged(seat) && (seat->is_spare || has_speed);
  if (!is_idle)
    seat->idle_ms = 0;
  else if (!seat->idle_ms)
    seat->idle_ms = coordinator->now_ms;
}

/* Sums that travel compressed are of whole groups of microbatches. */
static void share_microbatches(const struct run *run, const struct assign_worker *speeds, int count,
                               struct range *ranges) {
  struct compression compression = compression_of(run->spec->train);
  uint32_t n = plan_units(&run->plan);
  assign_ranges(speeds, count, n, ranges);
  if (compression.gradients)
    assign_whole_groups(ranges, count, n, 1u << compression.level);
}

/* Teams without microbatches evaluate nothing either: they are no teams then. */
void coordinator_share_work(struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                            int n) {
  struct arena *arena = &coordinator->actions->arena;
  struct range *microbatches = arena_new(arena, (size_t)n * sizeof *microbatches);
  struct range *eval_chunks = arena_new(arena, (size_t)n * sizeof *eval_chunks);
  int *ends = arena_new(arena, (size_t)n * sizeof *ends), count = coordinator_entities(seats, n, ends);
  struct assign_worker *speeds = coordinator_entity_speeds(arena, seats, n, ends, count);
  run->are_shares_due = false;
  run->gain_ms = 0;
  if (n == 0)
    return;
  share_microbatches(run, speeds, count, microbatches);
  for (int e = 0; e < count; e++)
    if (coordinator_is_staged(seats[ends[e] - 1]) && microbatches[e].begin == microbatches[e].end)
      speeds[e].speed = 0;
  assign_ranges(speeds, count, run->plan.eval_chunks, eval_chunks);
  for (int e = 0, i = 0; e < count; e++)
    for (; i < ends[e]; i++)
      give_share(coordinator, seats[i], microbatches[e], eval_chunks[e]);
}

/* Not all of them: then the machine stands still, or something that all wait for. */
static void set_aside_stuck(struct coordinator *coordinator, struct seat *const *seats, int n) {
  int stuck = coordinator->options.follow_ms ? 0 : n;
  for (int i = 0; i < n; i++)
    stuck += speed_is_stuck(seats[i]->speed);
  for (int i = 0; i < n && stuck < n; i++)
    if (speed_is_stuck(seats[i]->speed))
      coordinator_set_aside(coordinator, seats[i]);
}

/* Who is slow may not be so any more: its speed is forgotten, so that it is given work and measured. */
static void try_idle_workers(const struct coordinator *coordinator, struct seat *const *seats, int n) {
  for (int i = 0; i < n; i++) {
    struct seat *seat = seats[i];
    uint64_t pause_ms = seat->idle_pause_ms ? 2 * seat->idle_pause_ms : IDLE_MS;
    if (pause_ms > IDLE_MS_MAX)
      pause_ms = IDLE_MS_MAX;
    if (!seat->idle_ms || coordinator->now_ms - seat->idle_ms < pause_ms ||
        !(speed_of(seat->speed, seat->executors) > 0))
      continue;
    *seat->speed = (struct speed){0};
    seat->idle_ms = coordinator->now_ms;
    seat->idle_pause_ms = pause_ms;
  }
}

/* What part of a step's time the best shares would save. */
static double gain_of(const struct coordinator *coordinator, const struct run *run, struct seat *const *seats,
                      int n) {
  struct arena *arena = &coordinator->actions->arena;
  struct range *ranges = arena_new(arena, (size_t)n * sizeof *ranges);
  int *ends = arena_new(arena, (size_t)n * sizeof *ends), count = coordinator_entities(seats, n, ends);
  struct assign_worker *speeds = coordinator_entity_speeds(arena, seats, n, ends, count);
  double present;
  for (int e = 0; e < count; e++)
    ranges[e] = seats[ends[e] - 1]->microbatches;
  present = assign_seconds(speeds, count, ranges);
  share_microbatches(run, speeds, count, ranges);
  if (isinf(present))
    return isinf(assign_seconds(speeds, count, ranges)) ? 0 : 1;
  return present > 0 ? 1 - assign_seconds(speeds, count, ranges) / present : 0;
}

void coordinator_reshare_when_due(struct coordinator *coordinator, struct run *run) {
  const struct threshold *threshold = &alone;
  struct seat **seats;
  double gain;
  int n;
  if (run->state != WEIR__RUN_STATE__RUNNING || run->are_shares_due ||
      coordinator->now_ms - run->shares_ms < LOOK_MS)
    return;
  run->shares_ms = coordinator->now_ms;
  seats = coordinator_ready_seats(coordinator, run, &n);
  if (n < 2)
    return;
  set_aside_stuck(coordinator, seats, n);
  if (run->are_shares_due)
    return;
  try_idle_workers(coordinator, seats, n);
  for (int i = 0; i < n; i++)
    if (seats[i]->group.number)
      threshold = &in_groups;
  gain = gain_of(coordinator, run, seats, n);
  if (gain <= threshold->gain)
    run->gain_ms = 0;
  else if (!run->gain_ms)
    run->gain_ms = coordinator->now_ms;
  if (!run->gain_ms || coordinator->now_ms - run->gain_ms < threshold->lasts_ms)
    return;
  log_event(LOG_INFO, "coordinator", "reshare", "run=%s workers=%d gain=%.2f", run->id, n, gain);
  run->is_view_due = run->are_shares_due = true;
}

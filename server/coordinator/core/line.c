/* The order in which runs are given workers. */
#include "server/coordinator/core/line.h"

#include <math.h>

#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/state.h"

/* So many runs of one priority take turns at most, for each worker that there is: the others wait in the
   queue. A worker keeps about as many loaded. */
enum { RUNS_A_WORKER = 4, LAG_MS = 10000 };

bool line_only_evaluates(const struct run *run) {
  return run->spec->train->has_steps && run->spec->train->steps == 0;
}

bool line_needs_another(const struct run *run) {
  return run->suspicion || (run->reissue && run->reissue->doubts.n_open > 0);
}

int32_t line_priority(const struct run *run) {
  if (line_only_evaluates(run))
    return INT32_MAX;
  return line_needs_another(run) ? INT32_MAX - 1 : (int32_t)run->spec->priority;
}

struct line line_of(const struct coordinator *coordinator, int32_t priority) {
  struct line line = {true, priority, 0, INFINITY, 0};
  bool is_any_served = false;
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *run = coordinator->runs[i];
    if (!run->claim.is_made || run->state == WEIR__RUN_STATE__QUEUED || !run->turn.is_in_line ||
        line_priority(run) != priority)
      continue;
    line.n_begun++;
    line.foremost = fmin(line.foremost, run->turn.place);
    if (run->claim.held == 0)
      continue;
    line.used = is_any_served ? fmin(line.used, run->turn.used) : run->turn.used;
    is_any_served = true;
  }
  return line;
}

/* A run that once had many workers has used much, and would wait for days beside one that had few. */
static void end_turn(struct coordinator *coordinator, struct run *run) {
  int32_t priority = line_priority(run);
  turn_end(&run->turn, coordinator->now_ms);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *other = coordinator->runs[i];
    if (other->claim.is_made && other->claim.held == 0 && line_priority(other) == priority &&
        other->turn.place > run->turn.place + LAG_MS)
      turn_join(&other->turn, run->turn.place + LAG_MS);
  }
}

/* All of its priority have some executors, some beside others: a turn would only move them about. */
static bool are_all_seated(const struct coordinator *coordinator, const struct run *run) {
  bool is_any_beside = false;
  for (int i = 0; i < coordinator->n_runs; i++) {
    const struct run *other = coordinator->runs[i];
    if (!other->claim.is_made || line_priority(other) != line_priority(run))
      continue;
    if (other->claim.held == 0)
      return false;
    is_any_beside |= other->claim.owned == 0;
  }
  return is_any_beside;
}

void line_count_turns(struct coordinator *coordinator) {
  uint64_t passed_ms = coordinator->now_ms - coordinator->weighed_ms;
  coordinator->weighed_ms = coordinator->now_ms;
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    const struct claim *claim = &run->claim;
    turn_use(&run->turn, claim->executors, passed_ms, run->spec->workers->weight);
    if (!claim->is_made)
      run->turn.is_in_line = false;
    else if (!run->turn.is_in_line)
      turn_join(&run->turn, line_of(coordinator, line_priority(run)).used);
    else if (claim->held > 0 && turn_is_over(&run->turn, coordinator->now_ms) &&
             !are_all_seated(coordinator, run))
      end_turn(coordinator, run);
  }
}

double line_place(const struct run *run, const struct line *line, uint32_t workers) {
  bool is_full = line->n_begun >= (uint64_t)RUNS_A_WORKER * workers;
  return run->state == WEIR__RUN_STATE__QUEUED && is_full ? INFINITY : run->turn.place;
}

void line_leave_queue(struct coordinator *coordinator, struct run *run) {
  struct line line = line_of(coordinator, line_priority(run));
  if (line.n_begun > 0)
    turn_join(&run->turn, fmax(run->turn.place, line.foremost - 1));
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *other = coordinator->runs[i];
    if (other->claim.is_made && other->state == WEIR__RUN_STATE__QUEUED &&
        line_priority(other) == line.priority && other->turn.place < run->turn.place)
      turn_join(&other->turn, run->turn.place);
  }
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__LOADING);
}

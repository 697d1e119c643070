/* Pins: versions of runs that forks wait for. What a fork waits for follows from its origin alone, so that
   nothing else is stored, and a version has as many pins as forks. */
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { AGAIN_MS = 1000 };

static bool settle_fork(struct coordinator *coordinator, struct run *fork, const struct run *parent);
static bool await_version(struct coordinator *coordinator, struct run *fork, const struct run *parent);
static bool adopt(struct coordinator *coordinator, struct run *fork);
static void set_pin(struct run *run, uint64_t pin);

static bool is_waiting(const struct run *run) {
  return (run->origin.is_to_come && run->state == WEIR__RUN_STATE__QUEUED) || run->is_adopting;
}

static bool is_parent(const struct coordinator *coordinator, const struct run *fork, int at) {
  return at < coordinator->n_runs && strcmp(coordinator->runs[at]->id, fork->origin.parent) == 0;
}

/* Its place among the runs, mostly where it was before; their number: it is not there. */
static int find_parent(const struct coordinator *coordinator, struct run *fork) {
  if (is_parent(coordinator, fork, fork->parent_at))
    return fork->parent_at;
  fork->parent_at = 0;
  while (fork->parent_at < coordinator->n_runs && !is_parent(coordinator, fork, fork->parent_at))
    fork->parent_at++;
  return fork->parent_at;
}

void coordinator_pins_settle(struct coordinator *coordinator) {
  uint64_t *pins;
  if (!coordinator->has_pins)
    return;
  coordinator->has_pins = false;
  pins = arena_new(&coordinator->actions->arena, (size_t)coordinator->n_runs * sizeof *pins);
  memset(pins, 0xff, (size_t)coordinator->n_runs * sizeof *pins);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *fork = coordinator->runs[i];
    int at;
    if (!is_waiting(fork))
      continue;
    at = find_parent(coordinator, fork);
    if (!settle_fork(coordinator, fork, at < coordinator->n_runs ? coordinator->runs[at] : NULL))
      continue;
    coordinator->has_pins = true;
    if (at < coordinator->n_runs && fork->origin.step < pins[at])
      pins[at] = fork->origin.step;
  }
  for (int i = 0; i < coordinator->n_runs; i++)
    set_pin(coordinator->runs[i], pins[i]);
}

/* Whether it still waits. */
static bool settle_fork(struct coordinator *coordinator, struct run *fork, const struct run *parent) {
  bool is_still = fork->is_adopting ? adopt(coordinator, fork) : await_version(coordinator, fork, parent);
  fork->is_adopting &= is_still;
  return is_still;
}

/* Runs of a former coordinator come one by one: until the first tick the parent may still come. */
static bool await_version(struct coordinator *coordinator, struct run *fork, const struct run *parent) {
  unsigned long long step = fork->origin.step;
  if (!parent && coordinator->ticked_ms != coordinator->now_ms)
    return true;
  if (!parent) {
    coordinator_run_fail(coordinator, fork, FAILURE_OURS,
                         "run '%s' was deleted, and has not made step %llu, at which this fork was to begin",
                         fork->origin.parent, step);
  } else if (coordinator_has_checkpoint(parent, step)) {
    if (fork->is_base_asked || coordinator->now_ms < fork->base_ms)
      return true;
    coordinator_act(coordinator, ACTION_BASE)->run = fork->id;
    fork->is_base_asked = true;
  } else if (coordinator_is_over(parent)) {
    coordinator_run_fail(coordinator, fork, FAILURE_OURS,
                         "run '%s' is %s at step %llu, and has not made step %llu, at which this fork was to "
                         "begin",
                         parent->id, coordinator_state_name(parent->state), (unsigned long long)parent->step,
                         step);
  } else if (parent->checkpointing.passed >= step ||
             (parent->step > step && parent->checkpointing.step != step)) {
    coordinator_run_fail(coordinator, fork, FAILURE_OURS,
                         "run '%s' had passed step %llu, at which this fork was to begin, before it knew of "
                         "it: fork a later one",
                         parent->id, step);
  }
  return !coordinator_is_over(fork);
}

static bool is_loaded(const struct run *run) {
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_loaded)
      return false;
  return !run->is_load_due;
}

/* Servers are all that it needs for that: workers may come later. Where there is no room it reads its base
   from the store in its turn. */
static bool adopt(struct coordinator *coordinator, struct run *fork) {
  bool has_source = coordinator_fork_source(coordinator, fork) != NULL && fork->reloads == 0;
  if (fork->state == WEIR__RUN_STATE__LOADING)
    return has_source && !is_loaded(fork);
  if (fork->state != WEIR__RUN_STATE__QUEUED || !has_source)
    return false;
  if (fork->is_save_awaited)
    return true;
  if (!coordinator_has_server(coordinator, fork) || !coordinator_has_room(coordinator, fork, NULL))
    return false;
  coordinator_run_set_message(fork, "");
  coordinator_run_set_state(coordinator, fork, WEIR__RUN_STATE__LOADING);
  return true;
}

static void set_pin(struct run *run, uint64_t pin) {
  if (run->pin == pin)
    return;
  log_event(LOG_DEBUG, "coordinator", "pin", "run=%s step=%llu", run->id, (unsigned long long)pin);
  run->pin = pin;
  run->is_view_due |= run->state == WEIR__RUN_STATE__RUNNING;
}

void coordinator_run_based(struct coordinator *coordinator, const struct based_run *based) {
  struct run *run = coordinator_run(coordinator, based->run);
  if (!run || coordinator_is_over(run))
    return;
  run->is_base_asked = false;
  run->base_ms = coordinator->now_ms + AGAIN_MS;
  if (based->error) {
    coordinator_run_fail(coordinator, run, FAILURE_OURS, "%s", based->error);
  } else if (based->base && run->origin.is_to_come) {
    run->origin.is_to_come = false;
    run->origin.slots_step = based->slots_step;
    run->origin.incarnation = based->incarnation;
    coordinator_checkpoint_add(run, based->base);
    run->is_adopting = run->is_save_awaited = run->is_save_due = run->is_info_due = true;
    coordinator->has_pins = true;
    run->awaited_ms = coordinator->now_ms;
    log_event(LOG_INFO, "coordinator", "run_based", "run=%s parent=%s step=%llu slots_step=%llu", run->id,
              run->origin.parent, (unsigned long long)run->origin.step,
              (unsigned long long)run->origin.slots_step);
  }
}

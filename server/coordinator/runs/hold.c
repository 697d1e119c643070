/* Runs at their holds: they keep their servers, with the blocks in memory, and give back their workers. */
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

static void tell_servers(struct coordinator *coordinator, struct run *run);
static void look_at_spilled(struct coordinator *coordinator, struct run *run);
static bool are_blocks_at_hold(const struct run *run);
static void hold_begin(struct coordinator *coordinator, struct run *run);
static void hold_end(struct coordinator *coordinator, struct run *run);
static void release_workers(struct coordinator *coordinator, const struct run *run);

void coordinator_held(struct coordinator *coordinator, struct member *member, const Weir__RunHeld *held) {
  struct run *run = coordinator_run(coordinator, held->run);
  struct run_server *server = run ? coordinator_run_server(run, member) : NULL;
  if (server && !run->is_load_due && run->incarnation == held->incarnation)
    server->held_step = held->step;
}

void coordinator_hold_when_due(struct coordinator *coordinator, struct run *run) {
  bool is_begun = run->state == WEIR__RUN_STATE__LOADING || run->state == WEIR__RUN_STATE__RUNNING;
  tell_servers(coordinator, run);
  if (run->is_spilled)
    look_at_spilled(coordinator, run);
  if (!coordinator_is_at_hold(run))
    return;
  if (is_begun && are_blocks_at_hold(run))
    hold_begin(coordinator, run);
  else if (run->state == WEIR__RUN_STATE__QUEUED && coordinator_has_server(coordinator, run) &&
           coordinator_has_room(coordinator, run, NULL)) { /* resumed: servers are all that it needs */
    coordinator_run_set_message(run, "");
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__LOADING);
  }
}

void coordinator_hold_raised(struct coordinator *coordinator, const char *id, uint64_t step) {
  struct run *run = coordinator_run(coordinator, id);
  if (run && !coordinator_is_over(run))
    coordinator_raise_hold(coordinator, run, step);
}

void coordinator_raise_hold(struct coordinator *coordinator, struct run *run, uint64_t step) {
  Weir__TrainSpec *train = run->spec->train;
  if (!train->has_hold || (step > 0 && step <= train->hold))
    return;
  log_event(LOG_INFO, "coordinator", "hold_raised", "run=%s from=%llu to=%llu", run->id,
            (unsigned long long)train->hold, (unsigned long long)step);
  train->has_hold = step > 0;
  train->hold = step;
  run->is_view_due = run->is_info_due = run->is_save_due = true;
  if (run->state == WEIR__RUN_STATE__HELD && !coordinator_is_at_hold(run))
    hold_end(coordinator, run);
}

/* Those that loaded or kept the run before it was raised. */
static void tell_servers(struct coordinator *coordinator, struct run *run) {
  uint64_t hold;
  if (run->n_servers == 0 || run->is_load_due)
    return;
  hold = coordinator_run_bound(run);
  for (int i = 0; i < run->n_servers; i++) {
    struct run_server *server = &run->servers[i];
    bool is_reached = run->state == WEIR__RUN_STATE__HELD && !server->is_told_reached;
    if (!server->member || !server->is_loaded || (server->told_hold == hold && !is_reached))
      continue;
    coordinator_order_hold(coordinator, run, server->member);
    server->told_hold = hold;
    server->is_told_reached = run->state == WEIR__RUN_STATE__HELD;
  }
}

static bool are_blocks_at_hold(const struct run *run) {
  uint64_t hold = coordinator_run_hold(run);
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].held_step != hold)
      return false;
  return !run->is_load_due && run->n_servers > 0;
}

/* One that was loaded only now is not known so in the store, and a successor would load it anew. */
static void hold_begin(struct coordinator *coordinator, struct run *run) {
  if (run->state == WEIR__RUN_STATE__LOADING) {
    run->is_start_awaited = true;
    run->awaited_ms = coordinator->now_ms;
    run->reloads = 0;
    *run->cause = 0;
    coordinator_checkpoint_pass_over(run, run->base_step, false);
  }
  run->is_begun = true;
  run->is_view_due = false;
  run->held_ms = coordinator->now_ms;
  release_workers(coordinator, run);
  coordinator_reissue_free(run);
  coordinator_clock_stop(coordinator, run);
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__HELD);
  tell_servers(coordinator, run);
}

/* It claims workers again. Its servers go on as they are, if they have room for a run that trains; else, and
   where it was spilled, it waits for room. */
static void hold_end(struct coordinator *coordinator, struct run *run) {
  bool has_room = !run->is_spilled && coordinator_make_room(coordinator, run);
  if (!has_room && coordinator_may_spill(run))
    coordinator_spill(coordinator, run);
  if (run->is_spilled) {
    coordinator_run_set_message(run, "");
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__QUEUED);
    return;
  }
  coordinator_measure_anew(coordinator, run);
  coordinator_workers_changed(run);
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__RUNNING);
}

/* A pause and a stop need no blocks; but a checkpoint that has no hash of its weights is made anew, once
   there is room. If it is gone from the store, with the blocks, the run begins where it can. */
static void look_at_spilled(struct coordinator *coordinator, struct run *run) {
  uint64_t newest = coordinator_newest_checkpoint(run);
  if (newest != run->base_step || run->step != newest) {
    coordinator_new_incarnation(coordinator, run, newest);
    coordinator_run_set_message(run, "");
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__QUEUED);
    return;
  }
  coordinator_stop_training(coordinator, run);
  if (run->is_spilled && run->is_stopping && coordinator_has_server(coordinator, run) &&
      coordinator_has_room(coordinator, run, NULL))
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__LOADING);
}

/* They keep what they have loaded, as for a turn. */
static void release_workers(struct coordinator *coordinator, const struct run *run) {
  while (run->n_seats > 0)
    coordinator_rest_seat(coordinator, run->seats[0], "the run is held");
}

/* Memory of GPUs is for the run that is computed. */
static bool keeps_runs(const struct member *worker) {
  return strncmp(worker->device, "cuda", 4) != 0;
}

void coordinator_rest_seat(struct coordinator *coordinator, struct seat *seat, const char *reason) {
  coordinator_order_rest(coordinator, seat->run->id, seat->worker, reason);
  if (keeps_runs(seat->worker))
    loaded_add(&seat->worker->loaded, seat->run);
  coordinator_seat_end(seat);
}

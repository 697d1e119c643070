/* Runs that are held and give up the memory of their servers: another run needs it. Their blocks are in the
   store, and are loaded again when the hold is raised. */
#include "common/base/log.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* In a new incarnation, so that a server which comes back with its part is told to drop it. A fork that has
   not begun waits in the queue again. */
void coordinator_spill(struct coordinator *coordinator, struct run *run) {
  CHECK(coordinator_may_spill(run));
  log_event(LOG_INFO, "coordinator", "run_spilled", "run=%s step=%llu", run->id,
            (unsigned long long)run->step);
  if (run->state == WEIR__RUN_STATE__LOADING) {
    coordinator_new_incarnation(coordinator, run, run->base_step);
    coordinator_run_set_message(run, "");
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__QUEUED);
    return;
  }
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member)
      coordinator_order_unload(coordinator, run->id, run->servers[i].member, "the run is held, and spilled");
  coordinator_run_free_servers(run);
  coordinator_new_incarnation(coordinator, run, run->step);
  run->is_spilled = true;
  coordinator_run_set_message(run, "spilled: its blocks are in the store until its hold is raised");
}

/* With blocks on the server, the one that has been held for longest; NULL: none. */
static struct run *find_longest_held(const struct coordinator *coordinator, const struct run *but,
                                     const struct member *server) {
  struct run *longest = NULL;
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    if (run != but && coordinator_may_spill(run) && coordinator_run_server(run, server) &&
        (!longest || run->held_ms < longest->held_ms))
      longest = run;
  }
  return longest;
}

bool coordinator_make_room(struct coordinator *coordinator, const struct run *run) {
  struct room_lack lack;
  if (!coordinator_could_make_room(coordinator, run))
    return false;
  while (!coordinator_has_room(coordinator, run, &lack)) {
    struct run *held = find_longest_held(coordinator, run, lack.server);
    CHECK(held);
    coordinator_spill(coordinator, held);
  }
  return true;
}

/* It is to get blocks: it waits in the queue, or was spilled and is to be stopped. */
static bool is_waiting(const struct coordinator *coordinator, const struct run *run) {
  bool is_queued = run->state == WEIR__RUN_STATE__QUEUED && !run->origin.is_to_come;
  return (is_queued || (run->is_spilled && run->is_stopping)) && coordinator_has_server(coordinator, run);
}

void coordinator_spill_when_needed(struct coordinator *coordinator) {
  struct run *first = NULL;
  bool is_any = false;
  for (int i = 0; i < coordinator->n_runs && !is_any; i++)
    is_any = coordinator_may_spill(coordinator->runs[i]);
  for (int i = 0; i < coordinator->n_runs && is_any; i++) {
    struct run *run = coordinator->runs[i];
    if (is_waiting(coordinator, run) && (!first || run->spec->priority > first->spec->priority) &&
        !coordinator_has_room(coordinator, run, NULL) && coordinator_could_make_room(coordinator, run))
      first = run;
  }
  if (first)
    coordinator_make_room(coordinator, first);
}

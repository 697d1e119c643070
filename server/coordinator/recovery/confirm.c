/* Lost servers that workers of the run reach: what is broken is the way between the server and the
   coordinator, and training goes on. The run keeps such a server for a while. */
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

/* AFTER_MS: what a worker said sooner may be of the time before the loss. KEPT_MS: there are no checkpoints
   meanwhile, and perhaps nobody is told of steps. */
enum { AFTER_MS = 1000, KEPT_MS = 60000 };

static bool counters_name(const Weir__RunCounters *counters, const char *server) {
  for (size_t i = 0; i < counters->n_reached; i++)
    if (strcmp(counters->reached[i], server) == 0)
      return true;
  return false;
}

void coordinator_confirm(struct coordinator *coordinator, struct member *worker,
                         const Weir__RunCounters *counters) {
  const struct seat *seat = coordinator_seat(worker, counters->run);
  struct run *run = seat ? seat->run : NULL;
  if (!seat || seat->state != SEAT_READY || run->is_load_due || run->incarnation != counters->incarnation ||
      counters->n_reached > (size_t)run->n_servers)
    return;
  for (int i = 0; i < run->n_servers; i++) {
    struct run_server *server = &run->servers[i];
    if (server->member || coordinator->now_ms - server->lost_ms < AFTER_MS ||
        !counters_name(counters, server->id))
      continue;
    if (server->confirmed_ms == 0)
      log_event(LOG_WARN, "coordinator", "server_confirmed", "run=%s id=%s by=%s", run->id, server->id,
                worker->id);
    server->confirmed_ms = coordinator->now_ms;
  }
}

bool coordinator_is_confirmed(const struct coordinator *coordinator, const struct run_server *server) {
  return !server->member && server->confirmed_ms > 0 &&
         coordinator->now_ms - server->confirmed_ms < coordinator->options.server_grace_ms &&
         coordinator->now_ms - server->lost_ms < KEPT_MS;
}

/* Servers that drain: their runs go on without them. A run that trains is checkpointed at a version at which
   its workers then stand, so that nothing is computed twice, and begins a new incarnation there on the other
   servers: a planned roll-back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/nearest.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

enum { CAUSE_MAX = 700 };

/* Names the member that may have been meant, worker or server. */
static int check_known(const struct coordinator *coordinator, const struct viewer *viewer, Weir__Role role,
                       const char *id, struct err *err) {
  const char *kind = role == WEIR__ROLE__SERVER ? "server" : "worker", *near;
  const char **ids = mem_new((size_t)coordinator->n_members * sizeof *ids);
  const struct member *known = NULL;
  int n = 0;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (!viewer_sees_member(viewer, member))
      continue;
    ids[n++] = member->id;
    if (member->role == role && strcmp(member->id, id) == 0)
      known = member;
  }
  near = nearest_word(id, ids, n);
  free(ids);
  if (known)
    return viewer_check_rule(viewer, known->id, known->tenant, err);
  return err_set(err, ERR_NOT_FOUND, "no %s '%.60s' is here%s%s%s 'weir %ss' lists those that are", kind, id,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ":", kind);
}

bool coordinator_has_other_server(const struct coordinator *coordinator, const char *id) {
  for (int i = 0; i < coordinator->n_members; i++)
    if (strcmp(coordinator->members[i]->id, id) != 0 &&
        coordinator_may_own_blocks(coordinator, coordinator->members[i], true))
      return true;
  return false;
}

int coordinator_check_drain(const struct coordinator *coordinator, const struct viewer *viewer,
                            Weir__Role role, const char *id, struct err *err) {
  if (check_known(coordinator, viewer, role, id, err) || role == WEIR__ROLE__WORKER)
    return err->code;
  if (coordinator_has_other_server(coordinator, id))
    return 0;
  return err_set(err, ERR_INVALID,
                 "%s is the last server: no other one can take its blocks, so start another one first", id);
}

void coordinator_server_drain(struct member *server) {
  if (!server->is_draining)
    log_event(LOG_INFO, "coordinator", "server_drains", "id=%s", server->id);
  server->is_draining = true;
}

/* The first of the run's that drains; NULL: none does. */
static const struct member *find_draining(const struct run *run) {
  for (int i = 0; i < run->n_servers && !run->is_load_due; i++)
    if (run->servers[i].member && run->servers[i].member->is_draining)
      return run->servers[i].member;
  return NULL;
}

/* A run that is about to end frees its servers by itself. */
static bool can_move(const struct coordinator *coordinator, const struct run *run) {
  return run->state != WEIR__RUN_STATE__FINISHING && coordinator_lost_servers(run) == 0 &&
         coordinator_has_server(coordinator, run) && coordinator_has_room(coordinator, run, NULL);
}

/* A checkpoint has all that the run has computed, or was made for this. */
static bool is_saved(const struct run *run) {
  uint64_t newest = coordinator_newest_checkpoint(run);
  if (run->state == WEIR__RUN_STATE__HELD)
    return newest == coordinator_run_hold(run);
  return run->state == WEIR__RUN_STATE__LOADING || run->is_move_due || newest >= run->step;
}

void coordinator_move_when_due(struct coordinator *coordinator, struct run *run) {
  const struct member *from = find_draining(run);
  char cause[CAUSE_MAX];
  run->is_moving = from && can_move(coordinator, run);
  if (from && !run->is_moving && coordinator_may_spill(run)) { /* it needs no room */
    coordinator_spill(coordinator, run);
    return;
  }
  if (!run->is_moving || run->checkpointing.is_committing || !is_saved(run))
    return;
  snprintf(cause, sizeof cause, "%s (%s) drains, and its blocks move to other servers", from->id,
           from->address);
  coordinator_roll_back(coordinator, run, cause);
}

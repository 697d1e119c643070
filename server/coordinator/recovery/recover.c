/* Lost servers. A run waits for one that may come back with its part, longer for one that its workers reach;
   when that is not to be expected any more it rolls back to its newest checkpoint, on the servers that are
   there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/checkpointing.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { CAUSE_MAX = 1000, RELOADS_MAX = 6, RELOAD_PAUSE_MS = 500 };

static bool is_waited_for(const struct coordinator *coordinator, const struct run_server *server);
static bool is_replaced(const struct coordinator *coordinator, const struct run *run,
                        const struct run_server *server);
static void set_cause(char **cause, const char *text);

void coordinator_server_lost(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             const char *reason) {
  char text[CAUSE_MAX];
  server->member = NULL;
  if (run->is_load_due)
    return;
  server->lost_ms = coordinator->now_ms;
  server->grace_ms = coordinator->options.server_grace_ms;
  server->confirmed_ms = 0;
  run->is_info_due = true;
  snprintf(text, sizeof text, "%s (%s) was lost: %.400s", server->id, server->address, reason);
  set_cause(&run->loss_cause, text);
  log_event(LOG_WARN, "coordinator", "server_lost", "run=%s id=%s", run->id, server->id);
}

void coordinator_server_kept(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             struct member *member, uint64_t version) {
  struct checkpointing *making = &run->checkpointing;
  server->member = member;
  server->key = member->key;
  free(server->host);
  server->host = mem_strdup(member->host);
  if (!server->share_host || strcmp(server->share_host, member->share_host) != 0) {
    free(server->share_host);
    server->share_host = mem_strdup(member->share_host);
    run->is_view_due = true; /* it may be another one's reason for groups */
  }
  server->is_gone = false;
  server->told_hold = coordinator_run_bound(run);
  server->is_told_reached = false;
  run->is_info_due = true;
  if (version > making->newest && version < run->plan.steps)
    making->newest = version;
  log_event(LOG_INFO, "coordinator", "server_kept", "run=%s id=%s incarnation=%llu version=%llu", run->id,
            server->id, (unsigned long long)run->incarnation, (unsigned long long)version);
  coordinator_order_keep(coordinator, run, member);
  if (making->step && !making->is_committing && !server->is_written) /* that order may have been lost */
    coordinator_order_write(coordinator, run, member);
}

void coordinator_recover(struct coordinator *coordinator, struct run *run) {
  bool holds_servers = run->state == WEIR__RUN_STATE__LOADING || coordinator_has_blocks(run);
  int lost = coordinator_lost_servers(run), replaced = 0;
  bool is_hopeless = false;
  if (!holds_servers || run->checkpointing.is_committing)
    return; /* a commit may make a newer checkpoint to roll back to */
  if (lost == 0 && run->distrust)
    coordinator_roll_back(coordinator, run, run->distrust);
  if (lost == 0)
    return;
  for (int i = 0; i < run->n_servers; i++) {
    const struct run_server *server = &run->servers[i];
    if (server->member)
      continue;
    is_hopeless |= !is_waited_for(coordinator, server);
    replaced += is_replaced(coordinator, run, server);
  }
  if (is_hopeless || replaced == lost)
    coordinator_roll_back(coordinator, run, run->loss_cause);
}

static bool is_waited_for(const struct coordinator *coordinator, const struct run_server *server) {
  return coordinator->now_ms - server->lost_ms < server->grace_ms ||
         coordinator_is_confirmed(coordinator, server);
}

/* Its process is known to have lost what it had, or another is in its place: at its address, on its host, be
   it a new one or one that an earlier coordinator knew. The process itself would have come back with its id.
   A server elsewhere says nothing of it, nor does the holder of another certificate. */
static bool is_replaced(const struct coordinator *coordinator, const struct run *run,
                        const struct run_server *server) {
  for (int i = 0; i < coordinator->n_members && !server->is_gone; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role == WEIR__ROLE__SERVER && member->joined_ms >= server->lost_ms &&
        strcmp(member->address, server->address) == 0 &&
        (!server->host || strcmp(member->host, server->host) == 0) &&
        (!server->holder || !*server->holder || strcmp(member->holder, server->holder) == 0) &&
        coordinator_server_fits(run, member))
      return true;
  }
  return server->is_gone;
}

void coordinator_roll_back(struct coordinator *coordinator, struct run *run, const char *cause) {
  uint64_t step = coordinator_newest_checkpoint(run);
  set_cause(&run->cause, cause);
  if (coordinator_has_lost_base(run)) {
    coordinator_fail_without_base(coordinator, run, run->cause);
    return;
  }
  log_event(LOG_WARN, "coordinator", "roll_back", "run=%s from=%llu to=%llu cause=\"%s\"", run->id,
            (unsigned long long)run->step, (unsigned long long)step, run->cause);
  coordinator_new_incarnation(coordinator, run, step);
  if (run->state != WEIR__RUN_STATE__LOADING)
    coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__LOADING);
  if (run->is_pausing && !run->is_stopping)
    coordinator_pause_now(coordinator, run);
}

void coordinator_server_refused(struct coordinator *coordinator, struct run *run, struct run_server *server,
                                const Weir__RunRefused *refused) {
  const char *text = *refused->message ? refused->message : "it gave no reason";
  char cause[CAUSE_MAX];
  bool is_loading = run->state == WEIR__RUN_STATE__LOADING;
  if (run->is_load_due)
    return;
  snprintf(cause, sizeof cause, "%s (%s) refused the run: %.700s", server->id, server->address, text);
  if (is_loading && refused->lost_checkpoint && run->base_step > 0) {
    snprintf(cause, sizeof cause, "the checkpoint of step %llu cannot be read: %s (%s): %.700s",
             (unsigned long long)run->base_step, server->id, server->address, text);
    coordinator_checkpoint_pass_over(run, run->base_step, true);
    coordinator_roll_back(coordinator, run, cause);
  } else if (is_loading && refused->wrong_store) {
    coordinator_leave_out(coordinator, run, server->member, text);
    snprintf(cause, sizeof cause, "%s (%s) was left out", server->id, server->address);
    coordinator_roll_back(coordinator, run, cause);
  } else if (is_loading && !refused->bad_input && run->is_begun && run->reloads < RELOADS_MAX) {
    run->reload_ms = coordinator->now_ms + ((uint64_t)RELOAD_PAUSE_MS << run->reloads);
    run->reloads++;
    coordinator_roll_back(coordinator, run, cause);
  } else
    coordinator_run_fail(coordinator, run, refused->bad_input ? FAILURE_BAD_INPUT : FAILURE_OURS, "%s",
                         cause);
}

void coordinator_leave_out(const struct coordinator *coordinator, const struct run *run,
                           struct member *server, const char *message) {
  log_event(LOG_WARN, "coordinator", "server_left_out", "run=%s id=%s message=\"%.1000s\"", run->id,
            server->id, message);
  coordinator_member_set_message(server, text_copy_clean(message, CAUSE_MAX), run->tenant);
  server->left_out_ms = coordinator->now_ms;
  server->is_cut_off = false;
}

/* Cleaned when it becomes the run's message. */
static void set_cause(char **cause, const char *text) {
  char *copy = text_copy_clean(text, CAUSE_MAX); /* may be what it replaces */
  free(*cause);
  *cause = copy;
}

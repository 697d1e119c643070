/* What a run waits for, for people; nothing while it goes on. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/settle.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/checkpointing.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

enum { SAVE_SLOW_MS = 1000, HOLDERS_MAX = 3 };

/* Clauses separated by semicolons. */
struct clauses {
  char text[3072];
  bool has_fault; /* one of them tells of what has gone wrong, not of what is only waited for */
};

static void clauses_add(struct clauses *clauses, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void clauses_add_fault(struct clauses *clauses, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say_no_server(const struct coordinator *coordinator, const struct run *run,
                          struct clauses *clauses);
static void say_no_room(const struct room_lack *lack, struct clauses *clauses);
static void say_mismatch(const struct run *run, const struct member *server, struct clauses *clauses);
static void say_workers(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses);
static void say_holders(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses);
static void say_store(const struct coordinator *coordinator, const struct run *run, struct clauses *clauses);
static void say_loading(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses);
static void say_lost(const struct coordinator *coordinator, const struct run *run, struct clauses *clauses);
static void say_unreached(const struct run *run, struct clauses *clauses);
static void say_late(const struct run *run, struct clauses *clauses);

static void say_teams(struct coordinator *coordinator, const struct run *run, struct clauses *clauses);
static bool may_say(struct coordinator *coordinator, const struct run *run, const char *text);
static void say_pausing(const struct run *run, struct clauses *clauses);
static void say_moving(const struct coordinator *coordinator, const struct run *run, struct clauses *clauses);
static void say_doubts(const struct run *run, struct clauses *clauses);
static void say_to_come(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses);
static void say_pin(const struct run *run, struct clauses *clauses);
static void say_quarantines(const struct coordinator *coordinator, const struct run *run,
                            struct clauses *clauses);

void coordinator_explain(struct coordinator *coordinator, struct run *run) {
  const struct checkpointing *making = &run->checkpointing;
  struct room_lack lack;
  struct clauses clauses;
  clauses.text[0] = 0;
  clauses.has_fault = false;
  switch (run->state) {
  case WEIR__RUN_STATE__QUEUED:
    if (run->origin.is_to_come)
      say_to_come(coordinator, run, &clauses);
    else if (!coordinator_has_server(coordinator, run))
      say_no_server(coordinator, run, &clauses);
    else if (coordinator_has_room(coordinator, run, &lack))
      say_workers(coordinator, run, &clauses);
    else
      say_no_room(&lack, &clauses);
    break;
  case WEIR__RUN_STATE__LOADING:
    say_loading(coordinator, run, &clauses);
    say_teams(coordinator, run, &clauses);
    break;
  case WEIR__RUN_STATE__RUNNING:
    say_pausing(run, &clauses);
    say_moving(coordinator, run, &clauses);
    say_pin(run, &clauses);
    say_store(coordinator, run, &clauses);
    say_lost(coordinator, run, &clauses);
    say_unreached(run, &clauses);
    say_late(run, &clauses);
    say_workers(coordinator, run, &clauses);
    say_teams(coordinator, run, &clauses);
    say_doubts(run, &clauses);
    break;
  case WEIR__RUN_STATE__HELD:
    say_pausing(run, &clauses);
    say_moving(coordinator, run, &clauses);
    say_store(coordinator, run, &clauses);
    say_lost(coordinator, run, &clauses);
    break;
  case WEIR__RUN_STATE__FINISHING:
    say_lost(coordinator, run, &clauses);
    if (*making->message)
      clauses_add(&clauses, "waiting for the store to take the last checkpoint: %s", making->message);
    break;
  default: /* its message is of another kind */
    return;
  }
  say_quarantines(coordinator, run, &clauses);
  if (may_say(coordinator, run, clauses.text)) {
    coordinator_run_set_message(run, clauses.text);
    run->tells_fault = clauses.has_fault;
  }
}

/* Where many runs take turns, a worker that comes or goes changes what all of them say: some are left for the
   events after this one, which look at them again. */
static bool may_say(struct coordinator *coordinator, const struct run *run, const char *text) {
  if (run->state != WEIR__RUN_STATE__RUNNING || strcmp(run->message, text) == 0)
    return true;
  return coordinator->n_said++ < EXPLAINED_MAX;
}

static void say_pausing(const struct run *run, struct clauses *clauses) {
  const char *what = run->is_stopping ? "stopping" : "pausing";
  if (run->is_pausing && run->checkpointing.is_for_pause)
    clauses_add(clauses, "%s at step %llu", what, (unsigned long long)run->checkpointing.step);
  else if (run->is_pausing)
    clauses_add(clauses, "%s", what);
}

static void say_moving(const struct coordinator *coordinator, const struct run *run,
                       struct clauses *clauses) {
  for (int i = 0; i < run->n_servers && !run->is_load_due; i++) {
    const struct member *server = run->servers[i].member;
    if (!server || !server->is_draining)
      continue;
    if (run->checkpointing.is_for_move)
      clauses_add(clauses, "its blocks leave %s (%s) at step %llu", server->id, server->address,
                  (unsigned long long)run->checkpointing.step);
    else
      clauses_add(clauses, "its blocks are to leave %s (%s)%s", server->id, server->address,
                  !coordinator_has_server(coordinator, run) ? ", but there is no other server"
                  : coordinator_has_room(coordinator, run, NULL)
                      ? ""
                      : ", but the other servers have no room for them");
  }
}

/* Of a fork, what its parent does instead of coming there. */
static void say_to_come(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses) {
  const struct run *parent = coordinator_run(coordinator, run->origin.parent);
  const char *state = parent ? coordinator_state_name(parent->state) : "";
  unsigned long long step = run->origin.step;
  if (!parent)
    return;
  if (coordinator_has_checkpoint(parent, step))
    clauses_add(clauses, "waiting for the store: it takes over the checkpoint of step %llu of %s", step,
                parent->id);
  else if (parent->state == WEIR__RUN_STATE__HELD && parent->step < step)
    clauses_add(clauses,
                "waiting for step %llu of %s, which is held at step %llu ('weir set %s train.hold=%llu')",
                step, parent->id, (unsigned long long)parent->step, parent->id, step);
  else if (parent->state == WEIR__RUN_STATE__RUNNING)
    clauses_add(clauses, "waiting for step %llu of %s", step, parent->id);
  else
    clauses_add(clauses, "waiting for step %llu of %s, which is %s", step, parent->id, state);
}

static void say_pin(const struct run *run, struct clauses *clauses) {
  if (run->pin <= run->step)
    clauses_add(clauses, "stands at step %llu until a fork has taken it over", (unsigned long long)run->pin);
}

static void say_store(const struct coordinator *coordinator, const struct run *run, struct clauses *clauses) {
  if ((run->is_save_awaited || run->is_start_awaited) &&
      coordinator->now_ms - run->awaited_ms >= SAVE_SLOW_MS)
    clauses_add_fault(clauses, "waiting for the store");
}

static void say_loading(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses) {
  if (*run->cause)
    clauses_add(clauses, "rolled back to step %llu: %s", (unsigned long long)run->base_step, run->cause);
  say_store(coordinator, run, clauses);
  if (run->is_load_due && !coordinator_has_server(coordinator, run))
    say_no_server(coordinator, run, clauses);
  else if (coordinator_lost_servers(run))
    clauses_add(clauses, "%s", run->loss_cause);
  say_workers(coordinator, run, clauses);
}

static void say_no_server(const struct coordinator *coordinator, const struct run *run,
                          struct clauses *clauses) {
  const struct viewer viewer = viewer_of_tenant(run->tenant);
  clauses_add(clauses, "waiting for a server");
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role == WEIR__ROLE__SERVER && *member->message)
      clauses_add(clauses, "%s (%s) is left out: %s", member->id, member->address,
                  viewer_told(&viewer, member));
    else if (member->role == WEIR__ROLE__SERVER)
      say_mismatch(run, member, clauses);
  }
}

static void say_no_room(const struct room_lack *lack, struct clauses *clauses) {
  clauses_add(
      clauses,
      "waiting for memory: %llu bytes of %s (%s), which has %llu for runs, of which %d run%s take%s %llu",
      (unsigned long long)lack->needed, lack->server->id, lack->server->address,
      (unsigned long long)lack->server->memory_bytes, lack->runs, lack->runs == 1 ? "" : "s",
      lack->runs == 1 ? "s" : "", (unsigned long long)lack->taken);
}

static void say_mismatch(const struct run *run, const struct member *server, struct clauses *clauses) {
  char *mismatch = coordinator_server_mismatch(run, server);
  if (mismatch)
    clauses_add(clauses, "%s", mismatch);
  free(mismatch);
}

static void say_wanted(const struct coordinator *coordinator, const struct run *run, uint32_t have,
                       uint32_t min, struct clauses *clauses) {
  char *missing = coordinator_missing_labels(coordinator, run, min), required[LABELS_TEXT_MAX];
  labels_write(coordinator_required(run), required);
  clauses_add(clauses, "waiting for workers: %u of %u%s%s%s%s", have, min, *required ? " with " : "",
              required, missing ? ": " : "", missing ? missing : "");
  free(missing);
  missing = coordinator_missing_kind(coordinator, run, min);
  if (missing)
    clauses_add(clauses, "%s", missing);
  free(missing);
}

static void say_workers(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses) {
  uint32_t ready = (uint32_t)coordinator_count_seats(run, SEAT_READY);
  uint32_t loading = (uint32_t)coordinator_count_seats(run, SEAT_LOADING);
  uint32_t min = run->is_begun ? 1 : run->spec->workers->min, have = ready + loading;
  if (run->state == WEIR__RUN_STATE__RUNNING)
    have = ready;
  if (run->state == WEIR__RUN_STATE__QUEUED) {
    min = run->claim.least;
    have = run->claim.share ? run->claim.reserved : run->claim.left;
  }
  if (run->state == WEIR__RUN_STATE__RUNNING && run->claim.mates > 0) {
    clauses_add(clauses, "takes turns with %u other run%s", run->claim.mates,
                run->claim.mates > 1 ? "s" : "");
    return;
  }
  if ((have >= min && run->state != WEIR__RUN_STATE__QUEUED) || coordinator_is_at_hold(run))
    return;
  say_wanted(coordinator, run, have, min, clauses);
  if (run->state == WEIR__RUN_STATE__QUEUED && min > run->spec->workers->min)
    clauses_add(clauses, "so many make a team of %u stages", run->spec->workers->stages);
  if (run->claim.is_capped && run->claim.share < run->claim.least)
    clauses_add(clauses, "the quota of the tenant '%s' is executors=%llu, and its runs have %llu",
                run->tenant,
                (unsigned long long)quota_limit(coordinator->options.quotas, run->tenant, QUOTA_EXECUTORS),
                (unsigned long long)quota_used(coordinator, run->tenant, QUOTA_EXECUTORS));
  if (run->refusal)
    clauses_add(clauses, "%s", run->refusal);
  say_holders(coordinator, run, clauses);
}

/* Whether `other` has a worker with the labels that the run requires, or is about to have one as its own. */
static bool has_suited(const struct coordinator *coordinator, const struct run *other,
                       const struct run *run) {
  for (int i = 0; i < other->n_seats; i++)
    if (coordinator_has_labels(run, other->seats[i]->worker))
      return true;
  for (int i = 0; i < coordinator->n_members && other->claim.reserved > 0; i++)
    if (coordinator->members[i]->reserved_for == other &&
        coordinator_has_labels(run, coordinator->members[i]))
      return true;
  return false;
}

/* Who has what it waits for: the first few of them. Of a run that is to have enough, who lets go of some. */
static void say_holders(const struct coordinator *coordinator, const struct run *run,
                        struct clauses *clauses) {
  const struct weighed *weighed = &coordinator->weighed;
  bool has_share = run->claim.share >= run->claim.least, requires_any = coordinator_required(run).n > 0;
  int n = has_share ? coordinator->n_runs : weighed->n_served;
  uint32_t said = 0, others = 0, foreign = 0;
  if (has_share && run->claim.held + run->claim.reserved >= run->claim.least)
    return;
  for (int i = 0; i < n; i++) {
    const struct run *other = has_share ? coordinator->runs[i] : weighed->served[i];
    const struct claim *claim = &other->claim;
    if ((has_share && claim->owned <= claim->whole) || (requires_any && !has_suited(coordinator, other, run)))
      continue;
    if (strcmp(other->tenant, run->tenant) != 0)
      foreign++;
    else if (said++ >= HOLDERS_MAX)
      others++;
    else if (has_share)
      clauses_add(clauses, "%s is to give up %u", other->id, claim->owned - claim->whole);
    else
      clauses_add(clauses, "%s has %u", other->id, claim->share);
  }
  if (others)
    clauses_add(clauses, "%u other run%s workers", others, others == 1 ? " has" : "s have");
  if (foreign == 1)
    clauses_add(clauses, "another tenant's run has workers");
  else if (foreign)
    clauses_add(clauses, "%u runs of other tenants have workers", foreign);
}

/* Where nobody computes although workers are there. */
static void say_teams(struct coordinator *coordinator, const struct run *run, struct clauses *clauses) {
  char *missing = coordinator_missing_stages(run);
  int n;
  if (!missing)
    return;
  coordinator_ready_seats(coordinator, run, &n);
  if (n == 0)
    clauses_add(clauses, "waiting for workers: %s", missing);
  free(missing);
}

static void say_late(const struct run *run, struct clauses *clauses) {
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (seat->following.text)
      clauses_add_fault(clauses, "%s (%s) %s", seat->worker->id, seat->worker->host, seat->following.text);
  }
}

static void say_lost(const struct coordinator *coordinator, const struct run *run, struct clauses *clauses) {
  if (coordinator_lost_servers(run))
    clauses_add_fault(clauses, "%s", run->loss_cause);
  for (int i = 0; i < run->n_servers && !run->is_load_due; i++)
    if (coordinator_is_confirmed(coordinator, &run->servers[i]))
      clauses_add_fault(
          clauses,
          "%s (%s) is not heard of, but workers reach it: training goes on for a minute at most, "
          "and checkpoints wait",
          run->servers[i].id, run->servers[i].address);
}

static void say_unreached(const struct run *run, struct clauses *clauses) {
  for (int i = 0; i < run->n_seats; i++) {
    const struct seat *seat = run->seats[i];
    if (seat->unreached_text)
      clauses_add_fault(clauses, "%s (%s) %s", seat->worker->id, seat->worker->host, seat->unreached_text);
    if (coordinator_missed_mates(seat))
      clauses_add_fault(clauses, "%s (%s) %s", seat->worker->id, seat->worker->host,
                        coordinator_missed_mates(seat));
  }
}

static void say_doubts(const struct run *run, struct clauses *clauses) {
  const struct reissue *reissue = run->reissue;
  if (reissue && reissue->doubts.n_open > 0)
    clauses_add_fault(clauses,
                      "step %llu: the sum of parts that are finite overflows: they are computed once more",
                      (unsigned long long)reissue->step);
  if (run->suspicion)
    clauses_add_fault(clauses, "%s", run->suspicion);
}

/* Those that this run has found, and those that it might have had. */
static void say_quarantines(const struct coordinator *coordinator, const struct run *run,
                            struct clauses *clauses) {
  const struct viewer viewer = viewer_of_tenant(run->tenant);
  bool is_waiting = coordinator->quarantines.count > 0 && run->state != WEIR__RUN_STATE__FINISHING &&
                    coordinator_count_seats(run, SEAT_READY) == 0;
  for (int i = 0; i < coordinator->quarantines.count; i++) {
    const struct quarantine *quarantine = &coordinator->quarantines.items[i];
    bool is_own = strcmp(quarantine->tenant, run->tenant) == 0;
    if (viewer_sees_holder(&viewer, quarantine->holder) &&
        (is_waiting || strcmp(quarantine->run, run->id) == 0))
      clauses_add_fault(clauses, "%s (%s, %s) is in quarantine: %s", quarantine->worker, quarantine->host,
                        quarantine->device,
                        is_own ? quarantine->reason : "another tenant's run has found it out");
  }
}

static void add_words(struct clauses *clauses, const char *format, va_list args) {
  size_t length = strlen(clauses->text);
  if (length && length < sizeof clauses->text - 3) {
    strcpy(clauses->text + length, "; ");
    length += 2;
  }
  vsnprintf(clauses->text + length, sizeof clauses->text - length, format, args);
}

static void clauses_add(struct clauses *clauses, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_words(clauses, format, args);
  va_end(args);
}

static void clauses_add_fault(struct clauses *clauses, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_words(clauses, format, args);
  va_end(args);
  clauses->has_fault = true;
}

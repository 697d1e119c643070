/* Which members serve which run: after every event the state is settled. */
#include "server/coordinator/core/settle.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/core/beside.h"
#include "server/coordinator/core/claims.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/messages/record.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/reissue/reissue.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

static void settle_run(struct coordinator *coordinator, struct run *run);
static void explain_waiting(struct coordinator *coordinator);
static void move_misplaced(struct coordinator *coordinator, struct run *run);
static void load_servers(struct coordinator *coordinator, struct run *run);
static struct member **choose_servers(const struct coordinator *coordinator, struct run *run, int *n);
static bool is_among(struct member *const *members, int n, const struct member *member);
static void start_when_loaded(struct coordinator *coordinator, struct run *run);
static void publish_info(struct coordinator *coordinator, struct run *run);
static void let_drained_go(struct coordinator *coordinator);
static void runs_save(struct coordinator *coordinator);

/* It has members, or is to have servers. */
static bool is_live(const struct run *run) {
  return run->state == WEIR__RUN_STATE__LOADING || coordinator_has_blocks(run);
}

/* A report is of one run. What heartbeats have told of others waits for the next tick. */
static bool have_claims_changed(struct coordinator *coordinator, const char *reported,
                                const struct run *only) {
  return (!reported || (only && coordinator_claim_changed(only))) && coordinator_claims_changed(coordinator);
}

void coordinator_settle(struct coordinator *coordinator, const char *reported) {
  const struct run *only = reported ? coordinator_run(coordinator, reported) : NULL;
  bool has_weighed;
  coordinator->n_said = 0;
  if (!reported)
    coordinator_pins_settle(coordinator);
  for (int i = 0; i < coordinator->n_runs; i++)
    if (!coordinator_is_over(coordinator->runs[i])) {
      coordinator_recover(coordinator, coordinator->runs[i]);
      coordinator_hold_when_due(coordinator, coordinator->runs[i]);
    }
  if (coordinator->is_weigh_due)
    coordinator_spill_when_needed(coordinator);
  has_weighed = have_claims_changed(coordinator, reported, only) || coordinator->is_weigh_due ||
                (only && turn_is_over(&only->turn, coordinator->now_ms));
  if (has_weighed) {
    coordinator_weigh_claims(coordinator);
    coordinator->unexplained = coordinator->n_runs;
  }
  if (!reported || has_weighed)
    coordinator_deal_executors(coordinator);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    if (!coordinator_is_over(run) && (has_weighed || (is_live(run) && (!reported || run == only))))
      settle_run(coordinator, run);
  }
  explain_waiting(coordinator);
  for (int i = 0; i < coordinator->n_runs; i++)
    publish_info(coordinator, coordinator->runs[i]);
  let_drained_go(coordinator);
  runs_save(coordinator);
}

static void settle_run(struct coordinator *coordinator, struct run *run) {
  coordinator_take_workers(coordinator, run);
  if (!is_live(run)) {
    coordinator_doubts_when_due(coordinator, run); /* it may have had some */
    return;
  }
  coordinator_admit_followers(coordinator, run);
  coordinator_weigh_reach(coordinator, run);
  move_misplaced(coordinator, run);
  coordinator_move_when_due(coordinator, run);
  load_servers(coordinator, run);
  start_when_loaded(coordinator, run);
  coordinator_regroup_when_due(coordinator, run);
  coordinator_reshare_when_due(coordinator, run);
  coordinator_send_view(coordinator, run);
  coordinator_doubts_when_due(coordinator, run);
  coordinator_finish_when_complete(coordinator, run);
  coordinator_pause_when_idle(coordinator, run);
  coordinator_checkpoint_when_due(coordinator, run);
  if (run->is_view_due) /* workers are to stand at the version of that */
    coordinator_send_view(coordinator, run);
  coordinator_explain(coordinator, run);
}

/* In turn: each of them may have another message, and be kept anew. */
static void explain_waiting(struct coordinator *coordinator) {
  for (int n = 0; coordinator->unexplained > 0 && n < EXPLAINED_MAX; coordinator->unexplained--) {
    struct run *run;
    coordinator->explained %= coordinator->n_runs;
    run = coordinator->runs[coordinator->explained++];
    if (run->state != WEIR__RUN_STATE__QUEUED)
      continue;
    coordinator_explain(coordinator, run);
    n++;
  }
}

static void runs_save(struct coordinator *coordinator) {
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    if (run->is_save_due)
      coordinator_save(coordinator, run);
    run->is_save_due = false;
  }
  if (coordinator->is_members_due)
    coordinator_save_members(coordinator);
  coordinator->is_members_due = false;
}

/* No free worker was there for the stages that a team lacks: one that the other stages can do without loads
   them instead of its own. */
static void move_misplaced(struct coordinator *coordinator, struct run *run) {
  struct member *worker;
  struct seat *seat;
  if (run->state != WEIR__RUN_STATE__LOADING && run->state != WEIR__RUN_STATE__RUNNING)
    return;
  seat = coordinator_find_misplaced(run);
  if (!seat)
    return;
  worker = seat->worker;
  log_event(LOG_INFO, "coordinator", "other_stages", "run=%s id=%s", run->id, worker->id);
  coordinator_seat_end(seat);
  coordinator_join_run(coordinator, worker, run, (struct range){0, 0});
}

struct seat *coordinator_join_run(struct coordinator *coordinator, struct member *worker, struct run *run,
                                  struct range loaded) {
  struct seat *seat = coordinator_seat_new(run, worker);
  coordinator_give_stages(seat, loaded);
  seat->given_ms = coordinator->now_ms;
  loaded_remove(&worker->loaded, run);
  *worker->message = 0;
  coordinator_worker_set_state(worker, WORKER_IDLE);
  coordinator_order_load(coordinator, seat);
  return seat;
}

/* Every server that is of the run's kind (kind.c) serves the incarnation from its beginning to its end. Those
   of the one before let go of the run, if they are not told to load it anew. */
static void load_servers(struct coordinator *coordinator, struct run *run) {
  struct member **chosen;
  int n = 0;
  if (run->state != WEIR__RUN_STATE__LOADING || !plan_is_known(&run->plan) || !run->is_load_due ||
      run->is_save_awaited || coordinator->now_ms < run->reload_ms)
    return;
  if (!coordinator_has_server(coordinator, run))
    return;
  chosen = choose_servers(coordinator, run, &n);
  for (int i = 0; i < run->n_servers; i++)
    if (run->servers[i].member && !is_among(chosen, n, run->servers[i].member))
      coordinator_order_unload(coordinator, run->id, run->servers[i].member,
                               "the run has gone on without it");
  coordinator_run_free_servers(run);
  run->servers = mem_new((size_t)n * sizeof *run->servers);
  run->n_servers = n;
  for (int i = 0; i < n; i++) {
    run->servers[i].id = mem_strdup(chosen[i]->id);
    run->servers[i].address = mem_strdup(chosen[i]->address);
    run->servers[i].host = mem_strdup(chosen[i]->host);
    run->servers[i].holder = mem_strdup(chosen[i]->holder);
    run->servers[i].share_host = mem_strdup(chosen[i]->share_host);
    run->servers[i].member = chosen[i];
    run->servers[i].key = chosen[i]->key;
    run->servers[i].told_hold = coordinator_run_bound(run);
  }
  free(chosen);
  run->is_load_due = false;
  run->is_info_due = run->is_save_due = true;
  coordinator_place_blocks(run);
  for (int i = 0; i < n; i++)
    coordinator_order_load_blocks(coordinator, run, run->servers[i].member);
}

/* Those of the run that has the fork's base in memory, in its order, so that each block is where it is: if
   all of them are there, and have room for the whole fork. Otherwise none; *n is 0. */
static void choose_source_servers(const struct coordinator *coordinator, const struct run *run,
                                  struct member **chosen, int *n) {
  const struct run *parent = coordinator_fork_source(coordinator, run);
  *n = 0;
  for (int i = 0; parent && i < parent->n_servers; i++) {
    struct member *member = parent->servers[i].member;
    if (!member || *member->message || member->is_draining || !coordinator_server_fits(run, member)) {
      *n = 0;
      return;
    }
    chosen[(*n)++] = member;
  }
  if (*n > 0 && !coordinator_has_room_on(coordinator, run, chosen, *n))
    *n = 0;
}

/* Freed by the caller. */
static struct member **choose_servers(const struct coordinator *coordinator, struct run *run, int *n) {
  struct member **chosen = mem_new((size_t)coordinator->n_members * sizeof(struct member *));
  bool has_others = false;
  choose_source_servers(coordinator, run, chosen, n);
  if (*n > 0) {
    coordinator_server_set_kind(run, chosen[0]);
    return chosen;
  }
  for (int i = 0; i < coordinator->n_members; i++)
    has_others |= coordinator_may_own_blocks(coordinator, coordinator->members[i], true) &&
                  coordinator_server_fits(run, coordinator->members[i]);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    char *mismatch;
    if (!coordinator_may_own_blocks(coordinator, member, has_others))
      continue;
    coordinator_server_set_kind(run, member);
    mismatch = coordinator_server_mismatch(run, member);
    if (!mismatch)
      chosen[(*n)++] = member;
    else
      log_event(LOG_WARN, "coordinator", "server_refused", "run=%s id=%s message=\"%s\"", run->id, member->id,
                mismatch);
    free(mismatch);
  }
  return chosen;
}

static bool is_among(struct member *const *members, int n, const struct member *member) {
  for (int i = 0; i < n; i++)
    if (members[i] == member)
      return true;
  return false;
}

static void start_when_loaded(struct coordinator *coordinator, struct run *run) {
  uint32_t ready = (uint32_t)coordinator_count_seats(run, SEAT_READY);
  int n;
  if (run->state != WEIR__RUN_STATE__LOADING || run->is_load_due ||
      ready < (run->is_begun ? 1 : run->spec->workers->min))
    return;
  for (int i = 0; i < run->n_servers; i++)
    if (!run->servers[i].is_loaded || !run->servers[i].member)
      return;
  coordinator_ready_seats(coordinator, run, &n);
  if (n == 0) /* no team is whole */
    return;
  coordinator_measure_anew(coordinator, run);
  run->is_begun = run->is_start_awaited = true;
  run->awaited_ms = coordinator->now_ms;
  coordinator_workers_changed(run);
  run->reloads = 0;
  *run->cause = 0;
  coordinator_checkpoint_pass_over(run, run->base_step, false);
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__RUNNING);
}

static void publish_info(struct coordinator *coordinator, struct run *run) {
  struct logged_event event = {.kind = WEIR__RUN_EVENT__EVENT_INFO};
  Weir__RunInfo info;
  if (!run->is_info_due || run->is_stop_awaited)
    return;
  run->is_info_due = false;
  coordinator_info_fill(coordinator, run, coordinator->now_ms, &info);
  event.info = message_copy(&info);
  event_log_add(&run->events, &event);
  coordinator_act(coordinator, ACTION_PUBLISH)->run = run->id;
}

/* Their ranges are with others by now: leaving workers may go. */
static void let_drained_go(struct coordinator *coordinator) {
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    while (member->state == WORKER_DRAINING && member->n_seats > 0) {
      coordinator_order_unload(coordinator, member->seats[0]->run->id, member, "drained");
      coordinator_seat_end(member->seats[0]);
    }
  }
}

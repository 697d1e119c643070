/* The coordinator's decisions: where events come in. */
#include "server/coordinator/core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/join.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/quarantine/quarantine.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/reissue/reissue.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/options.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/sweep_kind.h"

enum { AWAY_MS = 1000, OTHER_MS = 3000 };

static bool is_heartbeat(const struct coordinator_event *event);
static bool is_report(const struct coordinator_event *event);
static void take_event(struct coordinator *coordinator, const struct coordinator_event *event);
static void member_message(struct coordinator *coordinator, struct member *member,
                           const Weir__MemberMessage *message);
static void member_beats(struct coordinator *coordinator, struct member *member,
                         const Weir__Heartbeat *heartbeat);
static void worker_leaving(struct member *worker);
static void server_leaving(struct coordinator *coordinator, struct member *server);
static void answer_those_that_leave(struct coordinator *coordinator);
static void member_drain(struct coordinator *coordinator, const char *id);
static void excuse_members(struct coordinator *coordinator);
static void close_missing(struct coordinator *coordinator);
static struct member *find_member(const struct coordinator *coordinator, uint64_t key);

struct coordinator *coordinator_new(const struct coordinator_options *options) {
  struct coordinator *coordinator = mem_new(sizeof *coordinator);
  coordinator->options = *options;
  coordinator->store_message = mem_strdup("");
  return coordinator;
}

void coordinator_free(struct coordinator *coordinator) {
  if (!coordinator)
    return;
  sweep_kinds_fini(coordinator);
  for (int i = 0; i < coordinator->n_members; i++)
    coordinator_member_free(coordinator->members[i]);
  for (int i = 0; i < coordinator->n_runs; i++)
    coordinator_run_free(coordinator->runs[i]);
  free(coordinator->members);
  free(coordinator->runs);
  quarantines_fini(&coordinator->quarantines);
  free(coordinator->weighed.words);
  free(coordinator->weighed.served);
  free(coordinator->store_message);
  free(coordinator);
}

void coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, uint64_t now_ms,
                      struct coordinator_actions *actions) {
  arena_fini(&actions->arena);
  actions->count = 0;
  if (coordinator->is_deposed)
    return;
  coordinator->now_ms = now_ms;
  coordinator->actions = actions;
  take_event(coordinator, event);
  if (is_heartbeat(event))
    coordinator->has_beats = true;
  else
    coordinator->is_weigh_due |= event->kind == EVENT_TICK ? coordinator->has_beats : !is_report(event);
  coordinator->has_beats &= event->kind != EVENT_TICK;
  if (!coordinator->is_deposed && !is_heartbeat(event))
    coordinator_settle(coordinator, is_report(event) ? event->message->step->run : NULL);
  coordinator->actions = NULL;
}

/* Most events are heartbeats, and settling looks at every member and run. Of what heartbeats tell, that a
   member is there and what it has computed, nothing is decided before the next tick. */
static bool is_heartbeat(const struct coordinator_event *event) {
  return event->kind == EVENT_MEMBER_MESSAGE &&
         event->message->body_case == WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT;
}

/* The most after them. They are of one run, and change nothing of others but what can be taken from it. */
static bool is_report(const struct coordinator_event *event) {
  return event->kind == EVENT_MEMBER_MESSAGE && event->message->body_case == WEIR__MEMBER_MESSAGE__BODY_STEP;
}

/* What people do. Whether it was that. */
static bool take_wish(struct coordinator *coordinator, const struct coordinator_event *event) {
  switch (event->kind) {
  case EVENT_RUN_SUBMITTED:
    coordinator_run_submitted(coordinator, event->submission);
    return true;
  case EVENT_RUN_CANCELLED:
    coordinator_run_cancelled(coordinator, event->run);
    return true;
  case EVENT_RUN_PAUSED:
    coordinator_run_paused(coordinator, event->run);
    return true;
  case EVENT_RUN_RESUMED:
    coordinator_run_resumed(coordinator, event->resumed.run, event->resumed.step);
    return true;
  case EVENT_RUN_SET:
    coordinator_run_set(coordinator, event->set.run, event->set.spec);
    return true;
  case EVENT_RUN_HOLD:
    coordinator_hold_raised(coordinator, event->hold.run, event->hold.step);
    return true;
  case EVENT_RUN_BASED:
    coordinator_run_based(coordinator, &event->based);
    return true;
  case EVENT_RUN_STOP:
    coordinator_run_stopped(coordinator, event->run);
    return true;
  case EVENT_WORKER_READMITTED:
    coordinator_readmit(coordinator, event->readmitted.viewer, event->readmitted.name);
    return true;
  case EVENT_MEMBER_DRAINED:
    member_drain(coordinator, event->drained);
    return true;
  default:
    return false;
  }
}

static void take_event(struct coordinator *coordinator, const struct coordinator_event *event) {
  struct member *member = find_member(coordinator, event->member);
  if (take_wish(coordinator, event))
    return;
  switch (event->kind) {
  case EVENT_MEMBER_JOINED:
    coordinator_member_joined(coordinator, event->member, event->hello);
    break;
  case EVENT_MEMBER_MESSAGE:
    if (member)
      member_message(coordinator, member, event->message);
    break;
  case EVENT_MEMBER_LEFT:
    if (member)
      coordinator_member_left(coordinator, member, event->reason);
    break;
  case EVENT_RUN_RESTORED:
    coordinator_run_restored(coordinator, &event->restored);
    break;
  case EVENT_RUN_FORGOTTEN:
    coordinator_run_forgotten(coordinator, event->run);
    break;
  case EVENT_RUN_SAVED:
    coordinator_run_saved(coordinator, &event->saved);
    break;
  case EVENT_CHECKPOINT:
    coordinator_commit_finished(coordinator, &event->checkpoint);
    break;
  case EVENT_CHECKPOINT_DROPPED: /* it left the run's list when it was ordered */
    break;
  case EVENT_QUOTAS: /* settling goes by them */
    for (int i = 0; i < coordinator->n_runs; i++)
      quota_confine(coordinator, coordinator->runs[i]);
    break;
  case EVENT_STORE:
    coordinator_store_told(coordinator, event->store_message);
    break;
  case EVENT_STORE_EMPTIED:
    coordinator_store_emptied(coordinator);
    break;
  case EVENT_MEMBERS_RESTORED:
    coordinator_members_restored(coordinator, event->members);
    break;
  case EVENT_SWEEP_KIND:
    sweep_kind_set(coordinator, event->sweep_kind.sweep, event->sweep_kind.kind);
    break;
  case EVENT_MODEL_LOST:
    coordinator_model_lost(coordinator, event->model_lost.run, event->model_lost.reason);
    break;
  case EVENT_TICK:
    excuse_members(coordinator);
    close_missing(coordinator);
    answer_those_that_leave(coordinator);
    break;
  default: /* of take_wish */
    break;
  }
}

static void member_message(struct coordinator *coordinator, struct member *member,
                           const Weir__MemberMessage *message) {
  member->heard_ms = coordinator->now_ms;
  switch (message->body_case) {
  case WEIR__MEMBER_MESSAGE__BODY_LOADED:
    coordinator_loaded(coordinator, member, message->loaded);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_REFUSED:
    coordinator_refused(coordinator, member, message->refused);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_STEP:
    coordinator_step_report(coordinator, member, message->step);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_EVAL:
    coordinator_eval_report(coordinator, member, message->eval);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_COMPLETE:
    coordinator_complete(coordinator, member, message->complete);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_HELD:
    coordinator_held(coordinator, member, message->held);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_WRITTEN:
    coordinator_written(coordinator, member, message->written);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_LEAVING:
    if (member->role == WEIR__ROLE__SERVER)
      server_leaving(coordinator, member);
    else
      worker_leaving(member);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED:
    coordinator_group_failed(coordinator, member, message->group_failed);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_UNREACHED:
    coordinator_unreached(coordinator, member, message->unreached);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_LATE:
    coordinator_late(coordinator, member, message->late);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_DOUBTED:
    coordinator_doubted(coordinator, member, message->doubted);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_JUDGED:
    coordinator_judged(coordinator, member, message->judged);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_READY:
    coordinator_ready(member, message->ready);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT:
    member_beats(coordinator, member, message->heartbeat);
    break;
  default: /* a later version's message */
    break;
  }
}

static void member_beats(struct coordinator *coordinator, struct member *member,
                         const Weir__Heartbeat *heartbeat) {
  for (size_t i = 0; i < heartbeat->n_runs; i++) {
    coordinator_confirm(coordinator, member, heartbeat->runs[i]);
    coordinator_mates_told(member, heartbeat->runs[i]);
    coordinator_count(coordinator, member, heartbeat->runs[i]);
  }
  coordinator_order_beat(coordinator, member);
}

/* The member remembers that for us, and for our successor. */
static void member_drain(struct coordinator *coordinator, const char *id) {
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    if (strcmp(member->id, id) != 0)
      continue;
    if (member->role == WEIR__ROLE__SERVER)
      coordinator_server_drain(member);
    else
      worker_leaving(member);
    coordinator_order_drain(coordinator, member);
  }
}

/* It drains as soon as there is another server: one may be on its way, as after a change of coordinators. */
static void answer_leaving(struct coordinator *coordinator, struct member *server) {
  if (coordinator_has_other_server(coordinator, server->id)) {
    coordinator_server_drain(server);
    coordinator_order_drain(coordinator, server);
  } else if (coordinator->now_ms - server->asked_ms >= OTHER_MS) {
    coordinator_order_no_other(coordinator, server);
  } else {
    return;
  }
  server->asks_to_leave = false;
}

static void server_leaving(struct coordinator *coordinator, struct member *server) {
  if (server->asks_to_leave || server->is_draining)
    return;
  server->asks_to_leave = true;
  server->asked_ms = coordinator->now_ms;
  answer_leaving(coordinator, server);
}

static void answer_those_that_leave(struct coordinator *coordinator) {
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->asks_to_leave)
      answer_leaving(coordinator, coordinator->members[i]);
}

static void worker_leaving(struct member *worker) {
  if (worker->role != WEIR__ROLE__WORKER || worker->state == WORKER_DRAINING)
    return;
  for (int i = 0; i < worker->n_seats; i++) {
    if (worker->seats[i]->state == SEAT_READY)
      coordinator_workers_changed(worker->seats[i]->run);
    coordinator_seat_set_state(worker->seats[i], SEAT_LEAVING);
  }
  coordinator_worker_set_state(worker, WORKER_DRAINING);
}

/* Who has joined since it was lost is fresh all the same. */
static void excuse_server(const struct coordinator *coordinator, struct run_server *server,
                          uint64_t away_ms) {
  uint64_t lost_ms = coordinator->now_ms - server->lost_ms;
  uint64_t unconfirmed_ms = coordinator->now_ms - server->confirmed_ms;
  server->grace_ms += lost_ms < away_ms ? lost_ms : away_ms;
  if (server->confirmed_ms)
    server->confirmed_ms += unconfirmed_ms < away_ms ? unconfirmed_ms : away_ms;
}

static void excuse_seat(const struct coordinator *coordinator, struct seat *seat, uint64_t away_ms) {
  uint64_t unreached_ms = coordinator->now_ms - seat->unreached_ms;
  uint64_t followed_ms = coordinator->now_ms - seat->following.since_ms;
  seat->unreached_ms += unreached_ms < away_ms ? unreached_ms : away_ms;
  seat->following.since_ms += followed_ms < away_ms ? followed_ms : away_ms;
}

/* Silence, and the grace of lost servers, count only while we listened. Where ticks are missing it was we who
   were away, on a frozen machine perhaps, and what members said meanwhile is still to be read. */
static void excuse_members(struct coordinator *coordinator) {
  uint64_t away_ms = coordinator->now_ms - coordinator->ticked_ms;
  coordinator->ticked_ms = coordinator->now_ms;
  for (int i = 0; i < coordinator->n_members && away_ms > AWAY_MS; i++) {
    struct member *member = coordinator->members[i];
    uint64_t silent_ms = coordinator->now_ms - member->heard_ms;
    member->heard_ms += silent_ms < away_ms ? silent_ms : away_ms;
    for (int at = 0; at < member->n_seats; at++)
      excuse_seat(coordinator, member->seats[at], away_ms);
  }
  for (int i = 0; i < coordinator->n_runs && away_ms > AWAY_MS; i++) {
    struct run *run = coordinator->runs[i];
    for (int at = 0; at < run->n_servers; at++)
      excuse_server(coordinator, &run->servers[at], away_ms);
  }
}

static void close_missing(struct coordinator *coordinator) {
  for (int i = coordinator->n_members - 1; i >= 0; i--) {
    struct member *member = coordinator->members[i];
    uint64_t silent_ms = coordinator->now_ms - member->heard_ms;
    char reason[64];
    if (silent_ms <= coordinator->options.missing_after_ms)
      continue;
    snprintf(reason, sizeof reason, "not heard of for %.1f s", (double)silent_ms / 1000);
    coordinator_close_link(coordinator, member->key, ERR_UNAVAILABLE, reason);
    coordinator_member_left(coordinator, member, reason);
  }
}

static struct member *find_member(const struct coordinator *coordinator, uint64_t key) {
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->key == key)
      return coordinator->members[i];
  return NULL;
}

/* The coordinator's decisions: where events come in. */
#include "server/coordinator/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/text.h"
#include "server/coordinator/state.h"

enum { MEMBERS_MAX = 4096, TEXT_MAX = 255, FINGERPRINT_MAX = 1023, AWAY_MS = 1000 };

static void member_joined(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello);
static int hello_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err);
static void close_link(struct coordinator *coordinator, uint64_t key, enum err_code code, const char *reason);
static void member_message(struct coordinator *coordinator, struct member *member,
                           const Weir__MemberMessage *message);
static void worker_leaving(struct member *worker);
static void member_left(struct coordinator *coordinator, struct member *member, const char *reason);
static void member_free(struct member *member);
static void run_cancelled(struct coordinator *coordinator, const char *id);
static void excuse_members(struct coordinator *coordinator);
static void close_missing(struct coordinator *coordinator);
static struct member *find_member(const struct coordinator *coordinator, uint64_t key);

struct coordinator *coordinator_new(const struct coordinator_options *options) {
  struct coordinator *coordinator = mem_new(sizeof *coordinator);
  coordinator->options = *options;
  return coordinator;
}

void coordinator_free(struct coordinator *coordinator) {
  if (!coordinator)
    return;
  for (int i = 0; i < coordinator->n_members; i++)
    member_free(coordinator->members[i]);
  for (int i = 0; i < coordinator->n_runs; i++)
    coordinator_run_free(coordinator->runs[i]);
  free(coordinator->members);
  free(coordinator->runs);
  free(coordinator);
}

void coordinator_actions_fini(struct coordinator_actions *actions) {
  arena_fini(&actions->arena);
  free(actions->items);
  *actions = (struct coordinator_actions){0};
}

void coordinator_step(struct coordinator *coordinator, const struct coordinator_event *event, uint64_t now_ms,
                      struct coordinator_actions *actions) {
  struct member *member = find_member(coordinator, event->member);
  arena_fini(&actions->arena);
  actions->count = 0;
  coordinator->now_ms = now_ms;
  coordinator->actions = actions;
  switch (event->kind) {
  case EVENT_MEMBER_JOINED:
    member_joined(coordinator, event->member, event->hello);
    break;
  case EVENT_MEMBER_MESSAGE:
    if (member)
      member_message(coordinator, member, event->message);
    break;
  case EVENT_MEMBER_LEFT:
    if (member)
      member_left(coordinator, member, event->reason);
    break;
  case EVENT_RUN_SUBMITTED:
    coordinator_run_submitted(coordinator, event->submission);
    break;
  case EVENT_RUN_CANCELLED:
    run_cancelled(coordinator, event->run);
    break;
  case EVENT_CHECKPOINT:
    coordinator_checkpoint(coordinator, &event->checkpoint);
    break;
  case EVENT_TICK:
    excuse_members(coordinator);
    close_missing(coordinator);
    break;
  default:
    break;
  }
  coordinator_settle(coordinator);
  coordinator->actions = NULL;
}

struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind) {
  struct coordinator_actions *actions = coordinator->actions;
  array_reserve((void **)&actions->items, &actions->capacity, actions->count, sizeof *actions->items);
  actions->items[actions->count] = (struct coordinator_action){.kind = kind};
  return &actions->items[actions->count++];
}

static void member_joined(struct coordinator *coordinator, uint64_t key, const Weir__Hello *hello) {
  struct err err;
  bool is_server = hello->role == WEIR__ROLE__SERVER;
  struct member *member;
  if (hello_check(coordinator, hello, &err)) {
    close_link(coordinator, key, err.code, err.text);
    return;
  }
  member = mem_new(sizeof *member);
  member->key = key;
  member->role = hello->role;
  member->id = is_server ? mem_printf("server-%u", ++coordinator->servers_seen)
                         : mem_printf("worker-%u", ++coordinator->workers_seen);
  member->host = text_copy_clean(hello->host, TEXT_MAX);
  member->address = text_copy_clean(hello->address, TEXT_MAX);
  member->device = text_copy_clean(hello->device, TEXT_MAX);
  member->fingerprint = text_copy_clean(hello->fingerprint, FINGERPRINT_MAX);
  member->message = mem_strdup("");
  member->pid = hello->pid;
  member->executors = hello->executors ? hello->executors : 1;
  member->joined_ms = member->heard_ms = coordinator->now_ms;
  array_reserve((void **)&coordinator->members, &coordinator->members_capacity, coordinator->n_members,
                sizeof *coordinator->members);
  coordinator->members[coordinator->n_members++] = member;
  log_event(LOG_INFO, "coordinator", "member_joined", "id=%s host=\"%s\" pid=%u %s=\"%s\" executors=%u",
            member->id, member->host, member->pid, is_server ? "address" : "device",
            is_server ? member->address : member->device, is_server ? 0 : member->executors);
  coordinator_order_welcome(coordinator, member);
}

static int hello_check(const struct coordinator *coordinator, const Weir__Hello *hello, struct err *err) {
  if (hello->role != WEIR__ROLE__SERVER && hello->role != WEIR__ROLE__WORKER)
    return err_set(err, ERR_INVALID, "the hello names no role");
  if (hello->role == WEIR__ROLE__SERVER && !*hello->address)
    return err_set(err, ERR_INVALID, "the hello of a server names no address");
  if (coordinator->n_members == MEMBERS_MAX)
    return err_set(err, ERR_BUSY, "the cluster is full: it has %d members", MEMBERS_MAX);
  return 0;
}

/* The reason is copied. */
static void close_link(struct coordinator *coordinator, uint64_t key, enum err_code code,
                       const char *reason) {
  struct coordinator_action *action = coordinator_act(coordinator, ACTION_CLOSE);
  action->member = key;
  action->code = code;
  action->reason = arena_strdup(&coordinator->actions->arena, reason);
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
  case WEIR__MEMBER_MESSAGE__BODY_WRITTEN:
    coordinator_written(coordinator, member, message->written);
    break;
  case WEIR__MEMBER_MESSAGE__BODY_LEAVING:
    worker_leaving(member);
    break;
  default: /* a heartbeat, or a later version's message */
    break;
  }
}

static void worker_leaving(struct member *worker) {
  if (worker->role != WEIR__ROLE__WORKER || worker->state == WORKER_DRAINING)
    return;
  if (worker->run && worker->state == WORKER_READY)
    worker->run->is_view_due = true;
  coordinator_worker_set_state(worker, WORKER_DRAINING);
}

static void member_left(struct coordinator *coordinator, struct member *member, const char *reason) {
  int at = 0;
  log_event(LOG_INFO, "coordinator", "member_left", "id=%s host=\"%s\" reason=\"%.200s\"", member->id,
            member->host, reason);
  while (coordinator->members[at] != member)
    at++;
  memmove(coordinator->members + at, coordinator->members + at + 1,
          (size_t)(coordinator->n_members - at - 1) * sizeof *coordinator->members);
  coordinator->n_members--;
  if (member->run)
    coordinator_worker_leave_run(member, WORKER_IDLE);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run_server *server = coordinator_run_server(coordinator->runs[i], member);
    if (!server)
      continue;
    server->member = NULL;
    coordinator_run_fail(coordinator, coordinator->runs[i], false, "%s (%s) was lost: %.200s", member->id,
                         member->address, reason);
  }
  member_free(member);
}

static void member_free(struct member *member) {
  free(member->id);
  free(member->host);
  free(member->address);
  free(member->device);
  free(member->fingerprint);
  free(member->message);
  free(member);
}

static void run_cancelled(struct coordinator *coordinator, const char *id) {
  struct run *run = coordinator_run(coordinator, id);
  if (!run || coordinator_is_over(run))
    return;
  coordinator_run_set_message(run, "");
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__CANCELLED);
}

/* Silence counts only while we listened. Where ticks are missing it was we who were away, on a frozen machine
   perhaps, and what members said meanwhile is still to be read. */
static void excuse_members(struct coordinator *coordinator) {
  uint64_t away_ms = coordinator->now_ms - coordinator->ticked_ms;
  coordinator->ticked_ms = coordinator->now_ms;
  for (int i = 0; i < coordinator->n_members && away_ms > AWAY_MS; i++) {
    struct member *member = coordinator->members[i];
    uint64_t silent_ms = coordinator->now_ms - member->heard_ms;
    member->heard_ms += silent_ms < away_ms ? silent_ms : away_ms;
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
    close_link(coordinator, member->key, ERR_UNAVAILABLE, reason);
    member_left(coordinator, member, reason);
  }
}

static struct member *find_member(const struct coordinator *coordinator, uint64_t key) {
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->key == key)
      return coordinator->members[i];
  return NULL;
}

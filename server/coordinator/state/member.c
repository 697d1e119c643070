/* Members: what is known of each. */
#include "server/coordinator/state/member.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

enum { NUMBER_MAX = 1 << 30 };

/* worker_moves[from] has bit `to`. */
#define TO(state) (1u << WORKER_##state)
static const unsigned worker_moves[] = {
    [WORKER_IDLE] = TO(IDLE) | TO(LOADING) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_LOADING] = TO(IDLE) | TO(FOLLOWING) | TO(READY) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_FOLLOWING] = TO(IDLE) | TO(READY) | TO(CUT_OFF) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_READY] = TO(IDLE) | TO(FOLLOWING) | TO(CUT_OFF) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_CUT_OFF] = TO(IDLE) | TO(FOLLOWING) | TO(READY) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_REFUSED] = TO(LOADING) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_DRAINING] = TO(DRAINING) | TO(IDLE),
    [WORKER_QUARANTINED] = TO(IDLE) | TO(DRAINING),
};
#undef TO

static const char *const worker_state_names[] = {"idle",    "loading", "following", "ready",
                                                 "cut-off", "refused", "draining",  "quarantined"};

void coordinator_worker_set_state(struct member *worker, enum worker_state state) {
  CHECK(worker_moves[worker->state] & (1u << state));
  if (worker->state == state)
    return;
  log_event(LOG_INFO, "coordinator", "worker_state", "id=%s from=%s to=%s run=%s", worker->id,
            worker_state_names[worker->state], worker_state_names[state],
            worker->run ? worker->run->id : "-");
  worker->state = state;
}

const char *coordinator_worker_state_name(enum worker_state state) {
  return worker_state_names[state];
}

bool coordinator_is_staged(const struct member *worker) {
  return worker->stages.begin < worker->stages.end;
}

void coordinator_worker_leave_run(struct member *worker, enum worker_state state) {
  if (worker->state == WORKER_READY)
    coordinator_workers_changed(worker->run);
  worker->run->is_info_due |= !coordinator_is_over(worker->run);
  coordinator_worker_set_state(worker, state);
  coordinator_run_remove_worker(worker);
  worker->stages = worker->microbatches = worker->eval_chunks = (struct range){0, 0};
  worker->group = (struct grouping){0};
  *worker->speed = (struct speed){0};
  free(worker->teams);
  worker->teams = NULL;
  worker->received_bytes = worker->idle_ms = worker->idle_pause_ms = 0;
  worker->is_spare = false;
  worker->ready_incarnation = UINT64_MAX;
  coordinator_follow_forget(worker);
  coordinator_reach_forget(worker);
}

void coordinator_follow_forget(struct member *worker) {
  free(worker->following.text);
  worker->following = (struct following){0};
}

void coordinator_reach_forget(struct member *worker) {
  free(worker->unreached);
  free(worker->unreached_text);
  worker->unreached = NULL;
  worker->unreached_text = NULL;
  worker->n_unreached = 0;
  free(worker->missed_mates.text);
  worker->missed_mates = (struct missed_mates){0};
}

char *coordinator_missed_mates(const struct member *worker) {
  return worker->missed_mates.team == worker->group.number ? worker->missed_mates.text : NULL;
}

void coordinator_member_free(struct member *member) {
  free(member->id);
  free(member->host);
  free(member->address);
  free(member->device);
  free(member->shm_host);
  labels_free(&member->labels);
  free(member->fingerprint);
  free(member->message);
  free(member->unreached);
  free(member->unreached_text);
  free(member->missed_mates.text);
  free(member->speed);
  free(member->teams);
  free(member->following.text);
  free(member);
}

uint32_t coordinator_id_number(const char *id, const char *prefix) {
  size_t length = strlen(prefix);
  uint32_t number = 0;
  if (strncmp(id, prefix, length) || id[length] == '0')
    return 0;
  for (const char *at = id + length; *at; at++) {
    if (*at < '0' || *at > '9' || number > NUMBER_MAX / 10)
      return 0;
    number = number * 10 + (uint32_t)(*at - '0');
  }
  return number;
}

void coordinator_id_seen(struct coordinator *coordinator, const char *id) {
  uint32_t server = coordinator_id_number(id, "server-"), worker = coordinator_id_number(id, "worker-");
  if (server > coordinator->servers_seen)
    coordinator->servers_seen = server;
  if (worker > coordinator->workers_seen)
    coordinator->workers_seen = worker;
}

void coordinator_ids_seen(struct coordinator *coordinator, uint32_t servers, uint32_t workers) {
  if (servers > coordinator->servers_seen && servers < NUMBER_MAX)
    coordinator->servers_seen = servers;
  if (workers > coordinator->workers_seen && workers < NUMBER_MAX)
    coordinator->workers_seen = workers;
}

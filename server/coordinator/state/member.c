/* Members: what is known of each. */
#include "server/coordinator/state/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/state.h"

enum { NUMBER_MAX = 1 << 30 };

/* worker_moves[from] has bit `to`. */
#define TO(state) (1u << WORKER_##state)
static const unsigned worker_moves[] = {
    [WORKER_IDLE] = TO(IDLE) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_REFUSED] = TO(IDLE) | TO(REFUSED) | TO(DRAINING) | TO(QUARANTINED),
    [WORKER_DRAINING] = TO(DRAINING),
    [WORKER_QUARANTINED] = TO(IDLE) | TO(DRAINING),
};
#undef TO

static const char *const worker_state_names[] = {"idle", "refused", "draining", "quarantined"};

void coordinator_worker_set_state(struct member *worker, enum worker_state state) {
  CHECK(worker_moves[worker->state] & (1u << state));
  if (worker->state == state)
    return;
  log_event(LOG_INFO, "coordinator", "worker_state", "id=%s from=%s to=%s", worker->id,
            worker_state_names[worker->state], worker_state_names[state]);
  worker->state = state;
}

const char *coordinator_worker_state_name(const struct member *worker) {
  return worker->n_seats ? coordinator_seat_state_name(worker->seats[0]->state)
                         : worker_state_names[worker->state];
}

bool coordinator_is_usable(const struct member *worker) {
  return worker->state == WORKER_IDLE || worker->state == WORKER_REFUSED;
}

void coordinator_member_set_message(struct member *member, char *message, const char *tenant) {
  free(member->message);
  member->message = message;
  snprintf(member->message_of, sizeof member->message_of, "%s", tenant);
}

void coordinator_member_free(struct member *member) {
  free(member->id);
  free(member->host);
  free(member->address);
  free(member->device);
  free(member->shm_host);
  free(member->share_host);
  free(member->holder);
  labels_free(&member->labels);
  free(member->fingerprint);
  free(member->message);
  for (int i = 0; i < member->n_seats; i++)
    coordinator_seat_free(member->seats[i]);
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

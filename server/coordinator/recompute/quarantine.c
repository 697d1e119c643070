/* Devices in quarantine: who is put there, what that means, and the way out. */
#include "server/coordinator/state/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/orders.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

enum { TEXT_MAX = 255, REASON_MAX = 1000 };

static void add(struct coordinator *coordinator, const Weir__Quarantine *stored);
static void readmit_at(struct coordinator *coordinator, int at);
static void isolate(struct coordinator *coordinator, struct member *worker, const struct quarantine *found);
static int find(const struct coordinator *coordinator, const char *name);

static void quarantine_fini(struct quarantine *quarantine) {
  free(quarantine->host);
  free(quarantine->device);
  free(quarantine->worker);
  free(quarantine->run);
  free(quarantine->reason);
}

static void past_worker_fini(struct past_worker *worker) {
  free(worker->id);
  free(worker->host);
  free(worker->device);
}

void quarantines_fini(struct quarantines *quarantines) {
  for (int i = 0; i < quarantines->count; i++)
    quarantine_fini(&quarantines->items[i]);
  for (int i = 0; i < PAST_WORKERS_MAX; i++)
    past_worker_fini(&quarantines->past[i]);
  free(quarantines->items);
}

bool coordinator_identify(const struct coordinator *coordinator, uint32_t number,
                          struct worker_identity *identity) {
  const struct quarantines *quarantines = &coordinator->quarantines;
  uint32_t n = quarantines->n_past < PAST_WORKERS_MAX ? quarantines->n_past : PAST_WORKERS_MAX;
  for (int i = 0; number && i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->role != WEIR__ROLE__WORKER || member->number != number)
      continue;
    *identity = (struct worker_identity){member->id, member->host, member->device};
    return true;
  }
  for (uint32_t back = 1; number && back <= n; back++) { /* the newest first */
    const struct past_worker *past = &quarantines->past[(quarantines->n_past - back) % PAST_WORKERS_MAX];
    if (past->number != number)
      continue;
    *identity = (struct worker_identity){past->id, past->host, past->device};
    return true;
  }
  return false;
}

bool coordinator_is_same_device(const struct worker_identity *a, const struct worker_identity *b) {
  return strcmp(a->host, b->host) == 0 && strcmp(a->device, b->device) == 0;
}

void coordinator_worker_past(struct coordinator *coordinator, const struct member *worker) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct past_worker *past = &quarantines->past[quarantines->n_past++ % PAST_WORKERS_MAX];
  past_worker_fini(past);
  *past = (struct past_worker){worker->number, mem_strdup(worker->id), mem_strdup(worker->host),
                               mem_strdup(worker->device)};
}

const struct quarantine *coordinator_quarantine_of(const struct coordinator *coordinator, const char *host,
                                                   const char *device) {
  for (int i = 0; i < coordinator->quarantines.count; i++) {
    const struct quarantine *quarantine = &coordinator->quarantines.items[i];
    if (strcmp(quarantine->host, host) == 0 && strcmp(quarantine->device, device) == 0)
      return quarantine;
  }
  return NULL;
}

void coordinator_quarantine(struct coordinator *coordinator, const struct worker_identity *identity,
                            const struct run *run, const char *reason) {
  Weir__Quarantine quarantine = WEIR__QUARANTINE__INIT;
  if (coordinator_quarantine_of(coordinator, identity->host, identity->device))
    return;
  quarantine.host = (char *)identity->host;
  quarantine.device = (char *)identity->device;
  quarantine.worker = (char *)identity->id;
  quarantine.run = run->id;
  quarantine.reason = (char *)reason;
  quarantine.since_unix_ms = coordinator->unix_offset_ms + (int64_t)coordinator->now_ms;
  log_event(LOG_WARN, "coordinator", "quarantine", "id=%s host=\"%s\" device=\"%s\" reason=\"%.1000s\"",
            identity->id, identity->host, identity->device, reason);
  add(coordinator, &quarantine);
  coordinator->is_members_due = true;
  for (int i = 0; i < coordinator->n_members; i++)
    coordinator_quarantine_newcomer(coordinator, coordinator->members[i]);
}

/* Everything is copied: the message may be a record's, and damaged. */
static void add(struct coordinator *coordinator, const Weir__Quarantine *stored) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct quarantine quarantine = {.host = text_copy_clean(stored->host, TEXT_MAX),
                                  .device = text_copy_clean(stored->device, TEXT_MAX),
                                  .worker = text_copy_clean(stored->worker, TEXT_MAX),
                                  .run = text_copy_clean(stored->run, TEXT_MAX),
                                  .reason = text_copy_clean(stored->reason, REASON_MAX),
                                  .since_unix_ms = stored->since_unix_ms};
  if (coordinator_quarantine_of(coordinator, quarantine.host, quarantine.device)) {
    quarantine_fini(&quarantine);
    return;
  }
  if (quarantines->count == QUARANTINES_MAX)
    readmit_at(coordinator, 0);
  array_reserve((void **)&quarantines->items, &quarantines->capacity, quarantines->count,
                sizeof *quarantines->items);
  quarantines->items[quarantines->count++] = quarantine;
}

void coordinator_quarantine_newcomer(struct coordinator *coordinator, struct member *worker) {
  const struct quarantine *found;
  if (worker->role != WEIR__ROLE__WORKER || worker->state == WORKER_DRAINING ||
      worker->state == WORKER_QUARANTINED)
    return;
  found = coordinator_quarantine_of(coordinator, worker->host, worker->device);
  if (found)
    isolate(coordinator, worker, found);
}

static void isolate(struct coordinator *coordinator, struct member *worker, const struct quarantine *found) {
  free(worker->message);
  worker->message =
      mem_printf("in quarantine: %s; 'weir workers --readmit %s' ends it", found->reason, worker->id);
  if (worker->run) {
    coordinator_order_unload(coordinator, worker->run->id, worker, worker->message);
    coordinator_worker_leave_run(worker, WORKER_QUARANTINED);
  } else
    coordinator_worker_set_state(worker, WORKER_QUARANTINED);
}

void coordinator_members_restored(struct coordinator *coordinator, const Weir__Members *members) {
  coordinator_ids_seen(coordinator, members->servers_seen, members->workers_seen);
  for (size_t i = 0; i < members->n_quarantines; i++)
    add(coordinator, members->quarantines[i]);
  coordinator->is_members_due = true;
}

int coordinator_find_quarantine(const struct coordinator *coordinator, const char *name,
                                struct device_name *device, struct err *err) {
  int at = find(coordinator, name);
  if (at < 0)
    return err_set(err, ERR_NOT_FOUND,
                   "no worker or device '%.200s' is in quarantine: name a worker, or HOST/DEVICE, that 'weir "
                   "workers' lists as quarantined",
                   name);
  device->host = coordinator->quarantines.items[at].host;
  device->device = coordinator->quarantines.items[at].device;
  return 0;
}

/* Its index, by the id of a worker on it, now or then, or by HOST/DEVICE; -1: none. */
static int find(const struct coordinator *coordinator, const char *name) {
  const struct quarantines *quarantines = &coordinator->quarantines;
  const struct member *named = NULL;
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->state == WORKER_QUARANTINED &&
        strcmp(coordinator->members[i]->id, name) == 0)
      named = coordinator->members[i];
  for (int i = 0; i < quarantines->count; i++) {
    const struct quarantine *item = &quarantines->items[i];
    size_t length = strlen(item->host);
    bool is_named = named ? strcmp(item->host, named->host) == 0 && strcmp(item->device, named->device) == 0
                          : strcmp(item->worker, name) == 0;
    if (is_named || (strncmp(name, item->host, length) == 0 && name[length] == '/' &&
                     strcmp(name + length + 1, item->device) == 0))
      return i;
  }
  return -1;
}

void coordinator_readmit(struct coordinator *coordinator, const char *name) {
  int at = find(coordinator, name);
  if (at >= 0)
    readmit_at(coordinator, at);
}

static void readmit_at(struct coordinator *coordinator, int at) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct quarantine ended = quarantines->items[at];
  memmove(quarantines->items + at, quarantines->items + at + 1,
          (size_t)(--quarantines->count - at) * sizeof *quarantines->items);
  coordinator->is_members_due = true;
  log_event(LOG_INFO, "coordinator", "readmitted", "host=\"%s\" device=\"%s\"", ended.host, ended.device);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *worker = coordinator->members[i];
    if (worker->state != WORKER_QUARANTINED || strcmp(worker->host, ended.host) != 0 ||
        strcmp(worker->device, ended.device) != 0)
      continue;
    *worker->message = 0;
    coordinator_worker_set_state(worker, WORKER_IDLE);
  }
  quarantine_fini(&ended);
}

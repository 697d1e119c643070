/* Devices in quarantine: who is put there, what that means, and the way out. */
#include "server/coordinator/quarantine/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/quarantines.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

enum { TEXT_MAX = 255, REASON_MAX = 1000 };

static void add(struct coordinator *coordinator, const Weir__Quarantine *stored);
static void readmit_at(struct coordinator *coordinator, int at);
static void isolate(struct coordinator *coordinator, struct member *worker, const struct quarantine *found);
static void distrust(struct run *run, const struct worker_identity *worker);

void coordinator_quarantine(struct coordinator *coordinator, const struct worker_identity *identity,
                            struct run *run, const char *reason) {
  Weir__Quarantine quarantine = WEIR__QUARANTINE__INIT;
  if (coordinator_quarantine_of(coordinator, identity))
    return;
  quarantine.host = (char *)identity->host;
  quarantine.device = (char *)identity->device;
  quarantine.worker = (char *)identity->id;
  quarantine.holder = (char *)identity->holder;
  quarantine.run = run->id;
  quarantine.tenant = run->tenant;
  quarantine.reason = (char *)reason;
  quarantine.since_unix_ms = coordinator->unix_offset_ms + (int64_t)coordinator->now_ms;
  log_event(LOG_WARN, "coordinator", "quarantine",
            "id=%s host=\"%s\" device=\"%s\" holder=\"%s\" reason=\"%.1000s\"", identity->id, identity->host,
            identity->device, identity->holder, reason);
  add(coordinator, &quarantine);
  coordinator->is_members_due = true;
  distrust(run, identity);
  for (int i = 0; i < coordinator->n_members; i++)
    coordinator_quarantine_newcomer(coordinator, coordinator->members[i]);
}

/* Everything is copied: the message may be a record's, and damaged. */
static void add(struct coordinator *coordinator, const Weir__Quarantine *stored) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct quarantine quarantine = {.host = text_copy_clean(stored->host, TEXT_MAX),
                                  .device = text_copy_clean(stored->device, TEXT_MAX),
                                  .worker = text_copy_clean(stored->worker, TEXT_MAX),
                                  .holder = text_copy_clean(stored->holder, TEXT_MAX),
                                  .run = text_copy_clean(stored->run, TEXT_MAX),
                                  .tenant = text_copy_clean(tenant_or_default(stored->tenant), CERT_WORD_MAX),
                                  .reason = text_copy_clean(stored->reason, REASON_MAX),
                                  .since_unix_ms = stored->since_unix_ms};
  struct worker_identity identity = {quarantine.worker, quarantine.host, quarantine.device,
                                     quarantine.holder};
  if (coordinator_quarantine_of(coordinator, &identity)) {
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
  struct worker_identity identity;
  const struct quarantine *found;
  if (worker->role != WEIR__ROLE__WORKER || worker->state == WORKER_DRAINING ||
      worker->state == WORKER_QUARANTINED)
    return;
  identity = coordinator_identity(worker);
  found = coordinator_quarantine_of(coordinator, &identity);
  if (found)
    isolate(coordinator, worker, found);
}

static void isolate(struct coordinator *coordinator, struct member *worker, const struct quarantine *found) {
  char *message =
      mem_printf("in quarantine: %s; 'weir workers --readmit %s' ends it", found->reason, worker->id);
  struct worker_identity identity = coordinator_identity(worker);
  coordinator_member_set_message(worker, message, found->tenant);
  while (worker->n_seats > 0) {
    if (worker->seats[0]->state != SEAT_LOADING)
      distrust(worker->seats[0]->run, &identity);
    coordinator_order_unload(coordinator, worker->seats[0]->run->id, worker, worker->message);
    coordinator_seat_end(worker->seats[0]);
  }
  coordinator_worker_set_state(worker, WORKER_QUARANTINED);
}

/* What it has pushed may be wrong where no sum has shown it, too: all since the newest checkpoint is computed
   anew, without it. A run that cannot roll back keeps it. */
static void distrust(struct run *run, const struct worker_identity *worker) {
  if (!coordinator_has_blocks(run) || coordinator_has_lost_base(run))
    return;
  free(run->distrust);
  run->distrust = mem_printf("%s (%s, %s) is in quarantine: more of what it has pushed may be wrong",
                             worker->id, worker->host, worker->device);
}

void coordinator_members_restored(struct coordinator *coordinator, const Weir__Members *members) {
  coordinator_ids_seen(coordinator, members->servers_seen, members->workers_seen);
  for (size_t i = 0; i < members->n_quarantines; i++)
    add(coordinator, members->quarantines[i]);
  coordinator->is_members_due = true;
}

void coordinator_readmit(struct coordinator *coordinator, const struct viewer *viewer, const char *name) {
  int at = coordinator_quarantine_find(coordinator, viewer, name);
  if (at >= 0)
    readmit_at(coordinator, at);
}

static void readmit_at(struct coordinator *coordinator, int at) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct quarantine ended = quarantines->items[at];
  struct worker_identity own = {ended.worker, ended.host, ended.device, ended.holder};
  memmove(quarantines->items + at, quarantines->items + at + 1,
          (size_t)(--quarantines->count - at) * sizeof *quarantines->items);
  coordinator->is_members_due = true;
  log_event(LOG_INFO, "coordinator", "readmitted", "host=\"%s\" device=\"%s\"", ended.host, ended.device);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *worker = coordinator->members[i];
    struct worker_identity identity = coordinator_identity(worker);
    if (worker->state != WORKER_QUARANTINED || !coordinator_is_same_device(&identity, &own))
      continue;
    *worker->message = 0;
    coordinator_worker_set_state(worker, WORKER_IDLE);
  }
  quarantine_fini(&ended);
}

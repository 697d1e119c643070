/* Which devices are in quarantine, and who the workers are and were. */
#include "server/coordinator/state/quarantines.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/tenant.h"

void quarantine_fini(struct quarantine *quarantine) {
  free(quarantine->host);
  free(quarantine->device);
  free(quarantine->holder);
  free(quarantine->worker);
  free(quarantine->run);
  free(quarantine->reason);
  free(quarantine->tenant);
}

static void past_worker_fini(struct past_worker *worker) {
  free(worker->id);
  free(worker->host);
  free(worker->device);
  free(worker->holder);
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
    *identity = coordinator_identity(member);
    return true;
  }
  for (uint32_t back = 1; number && back <= n; back++) { /* the newest first */
    const struct past_worker *past = &quarantines->past[(quarantines->n_past - back) % PAST_WORKERS_MAX];
    if (past->number != number)
      continue;
    *identity = (struct worker_identity){past->id, past->host, past->device, past->holder};
    return true;
  }
  return false;
}

bool coordinator_is_same_device(const struct worker_identity *a, const struct worker_identity *b) {
  return strcmp(a->host, b->host) == 0 && strcmp(a->device, b->device) == 0 &&
         (!*a->holder || !*b->holder || strcmp(a->holder, b->holder) == 0);
}

struct worker_identity coordinator_identity(const struct member *worker) {
  return (struct worker_identity){worker->id, worker->host, worker->device, worker->holder};
}

const char *coordinator_past_holder(const struct coordinator *coordinator, const char *id) {
  const struct quarantines *quarantines = &coordinator->quarantines;
  uint32_t n = quarantines->n_past < PAST_WORKERS_MAX ? quarantines->n_past : PAST_WORKERS_MAX;
  for (uint32_t back = 1; back <= n; back++) {
    const struct past_worker *past = &quarantines->past[(quarantines->n_past - back) % PAST_WORKERS_MAX];
    if (strcmp(past->id, id) == 0)
      return past->holder;
  }
  return NULL;
}

void coordinator_worker_past(struct coordinator *coordinator, const struct member *worker) {
  struct quarantines *quarantines = &coordinator->quarantines;
  struct past_worker *past = &quarantines->past[quarantines->n_past++ % PAST_WORKERS_MAX];
  past_worker_fini(past);
  *past = (struct past_worker){worker->number, mem_strdup(worker->id), mem_strdup(worker->host),
                               mem_strdup(worker->device), mem_strdup(worker->holder)};
}

static struct worker_identity identity_of(const struct quarantine *quarantine) {
  return (struct worker_identity){quarantine->worker, quarantine->host, quarantine->device,
                                  quarantine->holder};
}

const struct quarantine *coordinator_quarantine_of(const struct coordinator *coordinator,
                                                   const struct worker_identity *worker) {
  for (int i = 0; i < coordinator->quarantines.count; i++) {
    const struct quarantine *quarantine = &coordinator->quarantines.items[i];
    struct worker_identity own = identity_of(quarantine);
    if (coordinator_is_same_device(&own, worker))
      return quarantine;
  }
  return NULL;
}

int coordinator_quarantine_find(const struct coordinator *coordinator, const struct viewer *viewer,
                                const char *name) {
  const struct quarantines *quarantines = &coordinator->quarantines;
  const struct member *named = NULL;
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->state == WORKER_QUARANTINED &&
        strcmp(coordinator->members[i]->id, name) == 0)
      named = coordinator->members[i];
  for (int i = 0; i < quarantines->count; i++) {
    const struct quarantine *item = &quarantines->items[i];
    size_t length = strlen(item->host);
    struct worker_identity own = identity_of(item), other = {0};
    bool is_named;
    if (!viewer_sees_holder(viewer, item->holder))
      continue;
    if (named)
      other = coordinator_identity(named);
    is_named = named ? coordinator_is_same_device(&own, &other) : strcmp(item->worker, name) == 0;
    if (is_named || (strncmp(name, item->host, length) == 0 && name[length] == '/' &&
                     strcmp(name + length + 1, item->device) == 0))
      return i;
  }
  return -1;
}

/* What the members of a sweep's trials are to be. */
#include "server/coordinator/state/sweep_kind.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

static struct sweep_kind **find_at(struct coordinator *coordinator, const char *sweep) {
  struct sweep_kind **at = &coordinator->sweep_kinds;
  while (*at && strcmp((*at)->sweep, sweep) != 0)
    at = &(*at)->next;
  return at;
}

struct sweep_kind *sweep_kind_find(const struct coordinator *coordinator, const char *sweep) {
  struct sweep_kind *kind = coordinator->sweep_kinds;
  while (kind && strcmp(kind->sweep, sweep) != 0)
    kind = kind->next;
  return kind;
}

static void clear(struct sweep_kind *kind) {
  free(kind->worker);
  free(kind->fingerprint);
  free(kind->server);
  free(kind->server_fingerprint);
  kind->worker = kind->fingerprint = kind->server = kind->server_fingerprint = NULL;
}

static void fix(struct sweep_kind *kind, char **member, char **fingerprint, const char *name,
                const char *value) {
  if (*fingerprint || !name || !value || !*value)
    return;
  *member = mem_strdup(name);
  *fingerprint = mem_strdup(value);
  log_event(LOG_INFO, "coordinator", "sweep_kind", "sweep=%s member=\"%s\" fingerprint=\"%s\"", kind->sweep,
            name, value);
}

/* Of a run that was there before the kind was set. */
static void take_reference(struct sweep_kind *kind, const struct run *run) {
  const struct reference *reference = &run->reference;
  fix(kind, &kind->worker, &kind->fingerprint, reference->worker, reference->fingerprint);
  fix(kind, &kind->server, &kind->server_fingerprint, reference->server, reference->server_fingerprint);
}

static void forget(struct coordinator *coordinator, struct sweep_kind **at) {
  struct sweep_kind *kind = *at;
  for (int i = 0; i < coordinator->n_runs; i++)
    if (coordinator->runs[i]->kind == kind)
      coordinator->runs[i]->kind = NULL;
  *at = kind->next;
  clear(kind);
  free(kind->sweep);
  free(kind);
}

void sweep_kind_set(struct coordinator *coordinator, const char *sweep, const Weir__SweepKind *set) {
  struct sweep_kind **at = find_at(coordinator, sweep), *kind = *at;
  if (!set) {
    if (kind)
      forget(coordinator, at);
    return;
  }
  if (!kind) {
    kind = *at = mem_new(sizeof *kind);
    kind->sweep = mem_strdup(sweep);
  }
  clear(kind);
  fix(kind, &kind->worker, &kind->fingerprint, set->worker, set->fingerprint);
  fix(kind, &kind->server, &kind->server_fingerprint, set->server, set->server_fingerprint);
  for (int i = 0; i < coordinator->n_runs; i++) {
    struct run *run = coordinator->runs[i];
    if (strcmp(run->sweep, sweep) != 0)
      continue;
    run->kind = kind;
    if (run->spec->train->deterministic && !(set->is_reopened && coordinator_is_over(run)))
      take_reference(kind, run);
  }
}

void sweep_kinds_fini(struct coordinator *coordinator) {
  while (coordinator->sweep_kinds)
    forget(coordinator, &coordinator->sweep_kinds);
}

struct sweep_kind *sweep_kind_of(const struct run *run) {
  return run->spec->train->deterministic ? run->kind : NULL;
}

void sweep_kind_fix_worker(struct sweep_kind *kind, const struct member *worker) {
  char *name = mem_printf("%s (%s)", worker->id, worker->host);
  fix(kind, &kind->worker, &kind->fingerprint, name, worker->fingerprint);
  free(name);
}

void sweep_kind_fix_server(struct sweep_kind *kind, const struct member *server) {
  char *name = mem_printf("%s (%s)", server->id, server->address);
  fix(kind, &kind->server, &kind->server_fingerprint, name, server->fingerprint);
  free(name);
}

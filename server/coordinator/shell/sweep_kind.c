/* What computes a sweep in virtual order: the kinds of its members, which the core fixes when the first of
   them have loaded a trial, and what libm computes where its trials are suggested. The record `kind` in the
   store keeps both. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/libm.h"
#include "common/base/message.h"
#include "server/coordinator/shell/sweeps.h"
#include "server/coordinator/state/sweep_kind.h"

static void tell_core(struct coordinator_service *shell, const struct shell_sweep *sweep) {
  if (sweep->kind)
    shell_step(shell,
               &(struct coordinator_event){.kind = EVENT_SWEEP_KIND, .sweep_kind = {sweep->id, sweep->kind}});
}

static Weir__SweepKind *kind_new(bool is_reopened) {
  Weir__SweepKind kind = WEIR__SWEEP_KIND__INIT;
  kind.libm = (char *)libm_hash();
  kind.is_reopened = is_reopened;
  return message_copy(&kind);
}

void sweep_kind_open(struct shell_sweep *sweep, Weir__SweepKind *stored) {
  if (sweep->sweep->is_by_arrival) {
    message_free(stored);
    return;
  }
  sweep->kind = stored ? stored : kind_new(false);
  sweep->kind_changes = 1;
  sweep->kind_written = stored != NULL;
}

void shell_sweep_kind_begin(struct coordinator_service *shell, struct shell_sweep *sweep) {
  tell_core(shell, sweep);
}

void shell_sweep_kind_reopen(struct coordinator_service *shell, struct shell_sweep *sweep) {
  if (!sweep->kind)
    return;
  message_free(sweep->kind);
  sweep->kind = kind_new(true);
  sweep->kind_changes++;
  tell_core(shell, sweep);
}

void shell_sweep_kind_forget(struct coordinator_service *shell, const char *id) {
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_SWEEP_KIND, .sweep_kind = {id, NULL}});
}

void shell_sweep_kind_note(struct coordinator_service *shell, struct shell_sweep *sweep) {
  const struct sweep_kind *known = sweep->kind ? sweep_kind_find(shell->core, sweep->id) : NULL;
  Weir__SweepKind kind, *noted;
  if (!known)
    return;
  kind = *sweep->kind;
  if (!*kind.fingerprint && known->fingerprint) {
    kind.worker = known->worker;
    kind.fingerprint = known->fingerprint;
  }
  if (!*kind.server_fingerprint && known->server_fingerprint) {
    kind.server = known->server;
    kind.server_fingerprint = known->server_fingerprint;
  }
  if (kind.fingerprint == sweep->kind->fingerprint &&
      kind.server_fingerprint == sweep->kind->server_fingerprint)
    return;
  noted = message_copy(&kind);
  message_free(sweep->kind);
  sweep->kind = noted;
  sweep->kind_changes++;
}

bool sweep_kind_fits(const struct shell_sweep *sweep) {
  return !sweep->kind || strcmp(sweep->kind->libm, libm_hash()) == 0;
}

char *sweep_kind_trouble(const struct shell_sweep *sweep, struct arena *arena) {
  if (sweep->sweep->end || sweep_kind_fits(sweep))
    return NULL;
  return arena_printf(arena,
                      "this coordinator's libm computes '%s', and that of the one that suggested the trials "
                      "before '%s', so it would suggest others: start the coordinator on a machine like that "
                      "one, or stop the sweep and extend it, or search with 'order: arrival'",
                      libm_hash(), sweep->kind->libm);
}

int sweep_kind_write(struct store *store, const char *sweep, const Weir__SweepKind *kind,
                     const struct store_record *guard, struct err *err) {
  char *name = mem_printf("sweeps/%s/kind", sweep);
  int rc = checkpoint_write_record(store, name, kind, guard, err);
  free(name);
  return rc;
}

int sweep_kind_read(struct store *store, const char *sweep, Weir__SweepKind **kind, struct err *err) {
  char *name = mem_printf("sweeps/%s/kind", sweep);
  int rc = checkpoint_read_record(store, name, &weir__sweep_kind__descriptor, (void **)kind, err);
  free(name);
  if (rc != ERR_NOT_FOUND)
    return rc;
  *kind = NULL;
  *err = ERR_NONE;
  return 0;
}

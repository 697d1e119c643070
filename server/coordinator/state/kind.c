/* The kind of a run's members, which is their fingerprint: that of the first server and of the first worker,
   for the life of the run, since any server may own a block and any worker compute a microbatch. A trial of a
   sweep with a kind has that one. */
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/compress/compression.h"
#include "common/modes/mode.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"
#include "server/coordinator/state/sweep_kind.h"

bool member_knows_all_compressors(const struct member *member) {
  size_t n;
  const char *const *names = compressor_names(&n);
  return member->compressors == compressor_set(names, n);
}

static bool knows_compression(const struct run *run, const struct member *member) {
  return !(compression_needs(run->spec->train) & ~member->compressors);
}

static char *compression_mismatch(const struct member *member, const char *address) {
  return mem_printf("%s (%s) does not know what the run's train.compression names: a newer %s is needed",
                    member->id, address, member->role == WEIR__ROLE__SERVER ? "weir-server" : "weir-worker");
}

char *coordinator_server_mismatch(const struct run *run, const struct member *server) {
  const struct sweep_kind *sweep = sweep_kind_of(run);
  const char *of = "a run", *first = run->reference.server, *kind = run->reference.server_fingerprint;
  if (sweep)
    of = "a sweep in virtual order";
  if (!kind && sweep) {
    first = sweep->server;
    kind = sweep->server_fingerprint;
  }
  if (!knows_compression(run, server))
    return compression_mismatch(server, server->address);
  if (!kind || !run->spec->train->deterministic || strcmp(server->fingerprint, kind) == 0)
    return NULL;
  return mem_printf("%s (%s) is '%s', %s is '%s': servers of %s must be of one kind, or "
                    "train.deterministic false%s",
                    server->id, server->address, server->fingerprint, first, kind, of,
                    sweep ? "" : "; a run that is paused and resumed may go on with another kind");
}

bool coordinator_server_fits(const struct run *run, const struct member *server) {
  char *mismatch = coordinator_server_mismatch(run, server);
  free(mismatch);
  return !mismatch;
}

void coordinator_server_set_kind(struct run *run, const struct member *server) {
  struct sweep_kind *sweep = sweep_kind_of(run);
  if (run->reference.server_fingerprint || !knows_compression(run, server))
    return;
  free(run->reference.server);
  if (sweep)
    sweep_kind_fix_server(sweep, server);
  if (sweep && sweep->server_fingerprint) {
    run->reference.server = mem_strdup(sweep->server);
    run->reference.server_fingerprint = mem_strdup(sweep->server_fingerprint);
  } else {
    run->reference.server = mem_printf("%s (%s)", server->id, server->address);
    run->reference.server_fingerprint = mem_strdup(server->fingerprint);
  }
  run->is_save_due = true;
}

/* Foreign workers compute each step from the newest version. */
bool coordinator_admits_foreign(const struct run *run) {
  struct mode mode = mode_of(run->spec);
  if (mode_bounds(&mode).rounds > 1 || run->spec->train->local)
    return false;
  return !run->spec->train->deterministic && run->spec->workers->stages == 1 && !sweep_kind_of(run);
}

char *coordinator_worker_mismatch(const struct run *run, const struct member *worker) {
  const struct sweep_kind *sweep = sweep_kind_of(run);
  if (worker->is_foreign && !coordinator_admits_foreign(run))
    return mem_printf(
        "%s (%s) is another program than weir-worker: it may compute whole models alone, of runs with "
        "train.deterministic false, whose gradients are not late",
        worker->id, worker->host);
  if (run->is_confined && !worker->confines)
    return mem_printf(
        "%s (%s) keeps no run's files below its tenant's data_root: a newer weir-worker is needed",
        worker->id, worker->host);
  if (!knows_compression(run, worker))
    return compression_mismatch(worker, worker->host);
  if (!sweep || !sweep->fingerprint || strcmp(worker->fingerprint, sweep->fingerprint) == 0)
    return NULL;
  return mem_printf(
      "%s (%s) is '%s', %s is '%s': workers of a sweep in virtual order must be of one kind, or "
      "train.deterministic false",
      worker->id, worker->host, worker->fingerprint, sweep->worker, sweep->fingerprint);
}

bool coordinator_worker_fits(const struct run *run, const struct member *worker) {
  const struct sweep_kind *sweep = sweep_kind_of(run);
  if ((run->is_confined && !worker->confines) || !knows_compression(run, worker))
    return false;
  if (worker->is_foreign)
    return coordinator_admits_foreign(run);
  return !sweep || !sweep->fingerprint || strcmp(worker->fingerprint, sweep->fingerprint) == 0;
}

static bool has_strangers(const struct sweep_kind *kind, struct member *const *workers, int n) {
  for (int i = 0; i < n && kind->fingerprint; i++)
    if (strcmp(workers[i]->fingerprint, kind->fingerprint) != 0)
      return true;
  return false;
}

void coordinator_find_strangers(struct coordinator *coordinator, struct member *const *workers, int n) {
  for (struct sweep_kind *kind = coordinator->sweep_kinds; kind; kind = kind->next)
    kind->has_strangers = has_strangers(kind, workers, n);
}

bool coordinator_is_choosy(const struct coordinator *coordinator, const struct run *run) {
  const struct sweep_kind *sweep = sweep_kind_of(run);
  return coordinator->n_tied > 0 || coordinator->n_foreign > 0 || coordinator_required(run).n > 0 ||
         (sweep && sweep->has_strangers) || (run->is_confined && coordinator->n_unconfining > 0) ||
         (run->spec->train->compression && coordinator->n_uncompressing > 0);
}

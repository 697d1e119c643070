/* Which workers may be in groups. */
#include "server/coordinator/shares/companions.h"

#include <string.h>

#include "common/agree/spec.h"
#include "common/settle/spec_collective.h"
#include "server/coordinator/state/run.h"

static bool is_gpu(const struct member *worker) {
  return strncmp(worker->device, "cuda", 4) == 0;
}

/* Its blocks travel by socket to one of the run's servers at least. What is not known of a server shows when
   it is back. A worker that shares memory with nobody was told not to, or is of an older build. */
static bool is_apart(const struct run *run, const struct member *worker) {
  for (int i = 0; i < run->n_servers && *worker->share_host; i++) {
    const char *host = run->servers[i].share_host;
    if (host && strcmp(host, worker->share_host) != 0)
      return true;
  }
  return false;
}

const char *coordinator_group_host(const struct seat *seat) {
  const struct member *worker = seat->worker;
  const Weir__RunSpec *spec = seat->run->spec;
  const char *collective = spec_collective(spec);
  if (strcmp(collective, "none") == 0 || (strcmp(collective, "nccl") == 0 && !is_gpu(worker)) ||
      !*worker->shm_host || worker->n_seats > 1 || seat->executors < worker->executors)
    return NULL;
  if (!spec_names_collective(spec->train) && (is_gpu(worker) || !is_apart(seat->run, worker)))
    return NULL;
  return worker->shm_host;
}

bool coordinator_is_bound(const struct seat *seat) {
  return seat->group.number && (coordinator_is_staged(seat) || spec_names_collective(seat->run->spec->train));
}

/* The kind of a run's servers, which is their fingerprint: that of the first server, for the life
   of the run, since any server may own a block. */
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"

char *coordinator_server_mismatch(const struct run *run, const struct member *server) {
  const struct reference *reference = &run->reference;
  if (!reference->server_fingerprint || !run->spec->train->deterministic ||
      strcmp(server->fingerprint, reference->server_fingerprint) == 0)
    return NULL;
  return mem_printf("%s (%s) is '%s', %s is '%s': servers of a run must be of one kind, or "
                    "train.deterministic false; a run that is paused and resumed may go on with another kind",
                    server->id, server->address, server->fingerprint, reference->server,
                    reference->server_fingerprint);
}

bool coordinator_server_fits(const struct run *run, const struct member *server) {
  char *mismatch = coordinator_server_mismatch(run, server);
  free(mismatch);
  return !mismatch;
}

void coordinator_server_set_kind(struct run *run, const struct member *server) {
  if (run->reference.server_fingerprint)
    return;
  free(run->reference.server);
  run->reference.server = mem_printf("%s (%s)", server->id, server->address);
  run->reference.server_fingerprint = mem_strdup(server->fingerprint);
  run->is_save_due = true;
}

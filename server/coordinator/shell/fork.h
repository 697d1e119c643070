/* Forks: runs that begin from another's committed checkpoint. Between fork.c and saves.c. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_FORK_H
#define WEIR_SERVER_COORDINATOR_SHELL_FORK_H

#include "server/coordinator/shell/shell.h"

/* Begins the fork that is asked for; the call is answered later, or refused at once. parent: its whole id.
   step: of a checkpoint that it has. */
void shell_fork_begin(struct coordinator_service *shell, struct rpc_call *call,
                      const Weir__ForkRequest *request, const char *parent, uint64_t step);

/* What goes to the store with the first record of a fork: its own manifest of its parent's blocks. */
struct fork_base {
  char *parent;
  uint64_t step;
  bool is_laid_out_otherwise; /* the blocks are not as the fork's own spec lays them out */
};

void fork_base_free(struct fork_base *base); /* NULL is ignored */

/* Jobs: writes the manifest and then the record, and counts their references. It is the jobs that delete
   checkpoints, too, so that no block goes between. Errors: NOT_FOUND: the checkpoint has gone; STALE; the
   store's. */
int fork_base_write(struct coordinator_service *shell, const struct fork_base *base,
                    const Weir__RunRecord *record, struct err *err);

#endif

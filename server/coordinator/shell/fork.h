/* Forks: runs that begin from another's committed checkpoint. Between fork.c, saves.c and sweep_trials.c. */
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

/* A trial of a sweep that goes on with what another one has come to. */
struct trial_fork {
  const char *id;      /* of its run */
  const char *parent;  /* run, which the core knows */
  uint64_t step;       /* of a committed checkpoint of it */
  Weir__RunSpec *spec; /* checked; taken */
  const char *sweep;
  uint32_t trial;
};

/* Event loop: makes the run, unless it is there. shell_trial_forked is told when the core has it, or why not:
   INVALID: of the spec; any other error may be over when it is tried again. Errors: BUSY: nothing has begun.
 */
int shell_fork_trial(struct coordinator_service *shell, const struct trial_fork *fork, struct err *err);

void fork_base_free(struct fork_base *base); /* NULL is ignored */

/* Jobs: writes the manifest and then the record, and counts their references. It is the jobs that delete
   checkpoints, too, so that no block goes between. Errors: NOT_FOUND: the checkpoint has gone; STALE; the
   store's. */
int fork_base_write(struct coordinator_service *shell, const struct fork_base *base,
                    const Weir__RunRecord *record, struct err *err);

#endif

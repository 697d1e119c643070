/* Forks: runs that begin from another's committed checkpoint. Between fork.c, saves.c and sweep_trials.c. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_FORK_H
#define WEIR_SERVER_COORDINATOR_SHELL_FORK_H

#include "server/coordinator/shell/shell.h"

/* A version of a run, to be forked. */
struct fork_point {
  const char *parent; /* its whole id */
  uint64_t step;      /* of a checkpoint that it has, or */
  bool is_to_come;    /* of one that it is to make */
};

/* Begins the fork that is asked for; the call is answered later, or refused at once. */
void shell_fork_begin(struct coordinator_service *shell, struct rpc_call *call,
                      const Weir__ForkRequest *request, const struct fork_point *point);

/* Event loop: takes over the base of a fork that has waited for it; then EVENT_RUN_BASED, in any case. */
void shell_fork_base(struct coordinator_service *shell, const char *run);

/* What goes to the store with the first record of a fork, or the first after it has waited for its base: its
 * own manifest of its parent's blocks. */
struct fork_base {
  char *parent;
  uint64_t step;
  bool is_laid_out_otherwise; /* the blocks are not as the fork's own spec lays them out */
  bool is_late;               /* the fork was there before */
};

/* A trial of a sweep that goes on with what another one has come to. */
struct trial_fork {
  const char *id;      /* of its run */
  const char *parent;  /* run, which the core knows */
  uint64_t step;       /* of a committed checkpoint of it */
  Weir__RunSpec *spec; /* checked; taken */
  const char *sweep;
  uint32_t trial, repeat;
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

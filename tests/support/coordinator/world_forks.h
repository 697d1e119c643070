/* Worlds of which the second run is a fork of the first: it begins with one of its checkpoints, and servers
   may be told that they have that in memory. What it would get there has to be what the checkpoint has. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_WORLD_FORKS_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_WORLD_FORKS_H

#include "tests/support/coordinator/world.h"

/* What a submission of a fork points to. */
struct fork_terms {
  Weir__Plan plan;
  Weir__RunReference reference;
  Weir__CheckpointInfo base;
  struct run_inheritance inheritance;
};

/* It is to be a fork, and the other run has no checkpoint yet. */
bool forks_wait(const struct world *w, int run);

/* Makes the submission that of a fork, where the run is to be one and there still is a checkpoint. */
void forks_submit(struct world *w, int run, struct run_submission *submission, struct fork_terms *terms);

/* The store has the base of the run, if it was submitted as a fork; with its first record. */
void forks_store(struct world *w, int run, const struct run_submission *submission);

/* The newest checkpoint of the run is damaged, but not its base, without which a fork fails for good. */
void forks_damage(struct stored_run *run);

/* LoadRun.from says what is so. */
void forks_check_load(struct world *w, const struct process *server, const Weir__LoadRun *load);

#endif

/* What a submission of a fork points to, made up: for core_fixture.h, core_fleet.h and world.h. */
#ifndef WEIR_TESTS_SUPPORT_FORKS_FORK_TERMS_H
#define WEIR_TESTS_SUPPORT_FORKS_FORK_TERMS_H

#include "server/coordinator/state/event.h"

/* It points into itself, and stays where it is. */
struct fork_terms {
  Weir__Plan plan;
  Weir__RunReference reference;
  Weir__CheckpointInfo base;
  struct run_inheritance inheritance;
};

/* The parent's data has so many samples and its hash is "data"; the fork has so many steps. Its base is the
   version at which it begins, unless that is to come. */
void fork_terms_init(struct fork_terms *terms, uint64_t samples, uint64_t steps,
                     const struct run_origin *origin);

/* A checkpoint of a version, of a run that evaluates nothing. */
Weir__CheckpointInfo checkpoint_of_version(uint64_t step);

#endif

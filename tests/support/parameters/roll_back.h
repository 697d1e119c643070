/* A run of snapshot_fixture.h that goes on from a checkpoint of itself, as after a roll-back. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_ROLL_BACK_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_ROLL_BACK_H

#include "tests/support/parameters/snapshot_fixture.h"

/* What was written of the order's run, and so many versions before it, as the manifest says. */
struct roll_back {
  const Weir__LoadRun *order;
  const Weir__BlocksWritten *written;
  uint32_t versions_before;
};

/* Loads it in incarnation 2. *run is the caller's (hosted_run_put). Returns the error, after which there is
   no run. */
int roll_back_load(struct snapshot_fixture *f, const struct roll_back *from, struct hosted_run **run,
                   struct err *err);

/* Puts the run, which is the fixture's then, in the place of the one that wrote the checkpoint. */
void roll_back_to(struct snapshot_fixture *f, struct hosted_run *run);

#endif

/* A run with a checkpoint (restore_fixture.h), and forks of it that are loaded on the same server:
   fork_fixture_init(&f, make_order(1, 1), 1); spec = fork_spec(&f); fork_load(&f, &(struct fork_order){...},
   &fork). */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_FORK_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_FORK_FIXTURE_H

#include "tests/support/parameters/restore_fixture.h"

struct fork_fixture {
  struct restore_fixture parent;
  Weir__RunSpec *spec; /* of the parent; a fork may have another optimizer and average */
};

/* How a fork is loaded. */
struct fork_order {
  const char *id;            /* "unit-2" */
  const char *of;            /* whose checkpoint of the same version is its base, of which it is a fork */
  const Weir__RunSpec *spec; /* its own */
  uint64_t slots_step;
  size_t servers;               /* it is "server-1" of so many */
  const Weir__ForkSource *from; /* NULL: all is read from the store */
};

struct forked {
  struct hosted_run *run; /* the caller's */
  uint32_t n_adopted;
  struct restored restored;
};

/* The run has pushed its way to the version, which is committed. */
void fork_fixture_init(struct fork_fixture *f, const Weir__LoadRun *order, uint64_t version);
void fork_fixture_fini(struct fork_fixture *f);

/* "unit-1" in incarnation 1 at the version of its checkpoint. */
Weir__ForkSource fork_source(const struct fork_fixture *f);

/* Commits the fork's base as the coordinator does, and loads the fork in incarnation 1 as the server does;
   what fails fails the test. */
void fork_load(struct fork_fixture *f, const struct fork_order *order, struct forked *out);

/* Gives the loaded run to the server, which answers calls for it from then on; the reference stays the
   caller's. */
void fork_begin(struct fork_fixture *f, struct hosted_run *run);

/* As fork_load does it: a manifest of the blocks of run `of`. Returns the record's name, freed by the caller.
 */
char *fork_commit(struct store *store, const struct fork_order *order, uint64_t version);

/* No block can be read from the store any more. */
void fork_hide_blocks(struct store_double *store);

#endif

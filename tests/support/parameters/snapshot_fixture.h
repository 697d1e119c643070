/* A parameter server's run (parameters_fixture.h) and the writer of its checkpoints, on a store in memory:
   push_version(&f.server, 0); order_snapshot(&f, 1); wait_written(&f, 1, 1). */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_SNAPSHOT_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_SNAPSHOT_FIXTURE_H

#include "tests/support/parameters/parameters_fixture.h"
#include "tests/support/storage/store_double.h"

enum { ANSWERS_MAX = 8, MEMBERSHIP = 7 };

struct snapshot_fixture {
  struct parameters_fixture server; /* its lock guards the answers, too */
  struct store_double store;
  struct snapshot_writer *writer;
  struct hosted_run *run;
  Weir__MemberMessage *answers[ANSWERS_MAX];
  int n_answers;
};

/* A server with the run of this order, or of make_order(1, 1); all of its blocks are its own. */
void snapshot_fixture_init_order(struct snapshot_fixture *f, const Weir__LoadRun *run);
void snapshot_fixture_init(struct snapshot_fixture *f);

/* Also when the store hangs. Answers are freed. */
void snapshot_fixture_fini(struct snapshot_fixture *f);

/* Orders the run's blocks of version `step` to be written, as WriteBlocks does, and does not wait. */
void order_snapshot(struct snapshot_fixture *f, uint64_t step);

/* Waits for the n-th answer (BlocksWritten), from 1; it is good until snapshot_fixture_fini(). */
const Weir__BlocksWritten *wait_answer(struct snapshot_fixture *f, int n);

/* Waits until both shards have done what was posted before. No call may be parked. */
void wait_shards(struct snapshot_fixture *f);

/* The same, which must say that all blocks of version `step` are written. */
const Weir__BlocksWritten *wait_written(struct snapshot_fixture *f, int n, uint64_t step);

/* A copy of the run's own block `index` at its present version, f32 weights, then slots; freed by the
   caller. Nothing may be on its way to the block. */
void *read_content(const struct hosted_run *run, uint32_t index, size_t *size_bytes);

#endif

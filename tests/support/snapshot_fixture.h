/* A parameter server's run, and a writer of its checkpoints. */
#ifndef WEIR_TESTS_SNAPSHOT_FIXTURE_H
#define WEIR_TESTS_SNAPSHOT_FIXTURE_H

#include "common/base/message.h"
#include "tests/support/parameters_fixture.h"
#include "tests/support/store_double.h"

enum { ANSWERS_MAX = 8, MEMBERSHIP = 7 };

struct snapshot_fixture {
  struct fixture server; /* its lock guards the answers, too */
  struct store_double store;
  struct snapshot_writer *writer;
  struct hosted_run *run;
  Weir__MemberMessage *answers[ANSWERS_MAX];
  int n_answers;
};

void snapshot_fixture_init_order(struct snapshot_fixture *f, const Weir__LoadRun *run);

void snapshot_fixture_init(struct snapshot_fixture *f);

void snapshot_fixture_fini(struct snapshot_fixture *f);

void order_snapshot(struct snapshot_fixture *f, uint64_t step);

/* The n-th answer, from 1. */
const Weir__BlocksWritten *wait_answer(struct snapshot_fixture *f, int n);

/* Waits until both shards have done what was posted before. */
void wait_shards(struct snapshot_fixture *f);

const Weir__BlocksWritten *wait_written(struct snapshot_fixture *f, int n, uint64_t step);

/* A copy of a block at its present version, weights then slots; nothing is on its way to it. */
void *read_content(const struct hosted_run *run, uint32_t index, size_t *size_bytes);

#endif

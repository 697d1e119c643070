/* A store in memory with checkpoints of the small model, and the references to its blocks. */
#ifndef WEIR_TESTS_SUPPORT_CHECKPOINT_STORE_H
#define WEIR_TESTS_SUPPORT_CHECKPOINT_STORE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/checkpoint_fixture.h"

/* The state of each test. */
struct checkpoint_store {
  struct store *store;
  struct block_refs *refs;
};

int checkpoint_store_open(void **state);

int checkpoint_store_close(void **state);

/* As by a coordinator that starts. */
void checkpoint_store_read_refs(struct checkpoint_store *f);

void commit_checkpoint(struct checkpoint_store *f, const char *run, uint64_t step);

/* Freed with message_free. */
Weir__Manifest *read_manifest(struct checkpoint_store *f, const char *run, uint64_t step);

/* A run of that model, whose references count at once. */
void put_run(struct checkpoint_store *f, const char *run, const char *model_sha256);

#endif

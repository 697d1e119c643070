/* A store in memory for checkpoints of the small model (checkpoint_fixture.h), and the references to its
   blocks. checkpoint_store_open() and checkpoint_store_close() are a test's setup and teardown; *state is
   the struct. What fails here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_CHECKPOINT_STORE_H
#define WEIR_TESTS_SUPPORT_STORAGE_CHECKPOINT_STORE_H

#include "tests/support/storage/checkpoint_fixture.h"

/* The state of each test. */
struct checkpoint_store {
  struct store *store;
  struct block_refs *refs;
};

int checkpoint_store_open(void **state);
int checkpoint_store_close(void **state);

/* Reads f->refs again from the store, as a coordinator that starts does. */
void checkpoint_store_read_refs(struct checkpoint_store *f);

/* Writes and commits the run's checkpoint at `step`; its blocks are referred to. */
void commit_checkpoint(struct checkpoint_store *f, const char *run, uint64_t step);

/* The manifest of a committed checkpoint. Freed with message_free(). */
Weir__Manifest *read_manifest(struct checkpoint_store *f, const char *run, uint64_t step);

/* Writes the record of a run of that model, whose references count at once. */
void put_run(struct checkpoint_store *f, const char *run, const char *model_sha256);

#endif

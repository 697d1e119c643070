/* Writing a run's blocks to the store. */
#ifndef WEIR_SERVER_PARAMETERS_SNAPSHOT_H
#define WEIR_SERVER_PARAMETERS_SNAPSHOT_H

#include "server/parameters/run.h"
#include "storage/store.h"

/* Writes each of our blocks at version `step`, weights (or statistics state) then slots, and lists them in
   written, in the arena. Blocks are copied one at a time on their shards while training goes on; the caller's
   thread hashes and writes, so it must not be a shard's or a queue's. Errors: INVALID if a block is not at
   that version, NO_MEMORY, those of the store. */
int snapshot_write(struct hosted_run *run, uint64_t step, struct store *store, struct arena *arena,
                   Weir__BlocksWritten *written, struct err *err);

#endif

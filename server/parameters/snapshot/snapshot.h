/* Snapshots: checkpoints, written beside training. A snapshot is one version of our blocks of one run. Each
   block that comes to that version pins its buffers, so later updates write elsewhere. Threads hash the
   pinned buffers, write them to the store in batches from where they lie, and let go of them.

   Two threads serve all runs: one hashes while the other's batch is with the store. They yield to training,
   and no batch waits for longer than two others take. A run has one snapshot at a time; a snapshot that has
   ended early holds only the batches that are with the store. So a run's checkpoints take memory for one copy
   of its weights and slots, and for two batches. */
#ifndef WEIR_SERVER_PARAMETERS_SNAPSHOT_SNAPSHOT_H
#define WEIR_SERVER_PARAMETERS_SNAPSHOT_SNAPSHOT_H

#include "cluster.pb-c.h"
#include "common/base/err.h"
#include "server/parameters/snapshot/content.h"
#include "storage/store.h"

struct snapshot;
struct snapshot_writer;

struct snapshot_writer_options {
  struct store *store; /* outlives the writer */
  /* Told of BlocksWritten, which ends with the callback, in the membership that the order came in. On shards'
     threads and the writer's: never blocks. */
  void (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message);
  void *user;
};

struct snapshot_writer *snapshot_writer_new(const struct snapshot_writer_options *options);
/* Ends all snapshots, and the threads: waits for the store's answers if batches are with it. */
void snapshot_writer_stop(struct snapshot_writer *writer);
void snapshot_writer_free(struct snapshot_writer *writer); /* when no snapshot is left. NULL is ignored */

/* Begins one of n_blocks blocks, in the place of the run's former one, which ends and is not answered. The
   reference is the caller's. */
struct snapshot *snapshot_start(struct snapshot_writer *writer, const Weir__WriteBlocks *order,
                                uint32_t n_blocks, uint64_t membership);
struct snapshot *snapshot_get(struct snapshot *snapshot);
void snapshot_put(struct snapshot *snapshot); /* NULL is ignored */

uint64_t snapshot_step(const struct snapshot *snapshot);
/* A block at that version, each once: its place among ours, its index in the model, its content, of which the
   snapshot takes references of its own. Any thread, never blocks. Nothing happens when the snapshot is over.
 */
void snapshot_pin(struct snapshot *snapshot, uint32_t place, uint32_t block,
                  const struct block_content *content);
void snapshot_add_stall(struct snapshot *snapshot, uint64_t ns); /* what it took from a shard */

/* Each ends a snapshot and lets go of what is pinned, if it is not over: */
void snapshot_fail(struct snapshot *snapshot, const struct err *err, bool is_too_late); /* answers */
void snapshot_cancel(struct snapshot *snapshot);                                        /* does not */
void snapshot_writer_cancel(struct snapshot_writer *writer, const char *run); /* the run's; NULL: all */

#endif

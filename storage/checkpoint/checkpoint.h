/* Checkpoints and runs as records and blocks of a store (proto/store.proto). Servers and the coordinator read
   them, and so does the client where no coordinator runs. Every function blocks. Errors: those of the store
   besides those named. */
#ifndef WEIR_STORAGE_CHECKPOINT_CHECKPOINT_H
#define WEIR_STORAGE_CHECKPOINT_CHECKPOINT_H

#include "common/base/memory.h"
#include "model/model.h"
#include "model/onnx/onnx_outline.h"
#include "storage/store.h"
#include "store.pb-c.h"

/* Names of records; freed by the caller. */
char *checkpoint_name(const char *run, uint64_t step);         /* runs/RUN/checkpoints/STEP */
char *checkpoint_run_name(const char *run, const char *which); /* runs/RUN/WHICH: "run", "incarnation" */

/* A record's message, its nesting checked. Freed by message_free. Errors: NOT_FOUND; CORRUPT. A guard is a
   write's condition (struct store_record); NULL: none. */
int checkpoint_read_record(struct store *store, const char *name, const ProtobufCMessageDescriptor *type,
                           void **message, struct err *err);
int checkpoint_write_record(struct store *store, const char *name, const void *message,
                            const struct store_record *guard, struct err *err);

/* A manifest, complete: spec, plan, one entry for each block by index. Errors: NOT_FOUND; CORRUPT. */
int checkpoint_read(struct store *store, const char *name, Weir__Manifest **manifest, struct err *err);

/* The run that an id, its name (the newest one) or a unique prefix of an id names. Errors: NOT_FOUND; INVALID
 * when several match (named). */
int checkpoint_find_run(struct store *store, const char *prefix, Weir__RunRecord **record, struct err *err);
/* The steps of the run's committed checkpoints, ascending; freed by the caller. */
int checkpoint_list(struct store *store, const char *run, uint64_t **steps, int *n, struct err *err);
/* What a client is told of one. info is initialised; its texts belong to the manifest. */
void checkpoint_info(const Weir__Manifest *manifest, Weir__CheckpointInfo *info);

/* The weights of a checkpoint, a few blocks at a time: the flat parameter vector, or in its place the
   weights' average, then the running statistics. The manifest outlives the stream. Errors: CORRUPT when a
   block is not of its size; NOT_FOUND when one is missing; INVALID for an average that the run does not keep.
 */
struct weights_stream;
int weights_stream_open(struct store *store, const Weir__Manifest *manifest, bool is_average,
                        struct weights_stream **out, struct err *err);
uint64_t weights_stream_elems(const struct weights_stream *stream); /* of all that comes */
/* The next ones: *data f32[*elems] is good until the next call. *elems 0: that was all. */
int weights_stream_next(struct weights_stream *stream, const float **data, size_t *elems, struct err *err);
void weights_stream_close(struct weights_stream *stream); /* NULL is ignored */

/* weights_sha256 of a checkpoint, computed from its blocks. Errors: as above. */
int checkpoint_weights_sha256(struct store *store, const Weir__Manifest *manifest, char sha256[65],
                              struct err *err);

/* All that a stream gives. *out is the caller's. Errors: the stream's; NO_MEMORY. */
int checkpoint_flat_weights(struct store *store, const Weir__Manifest *manifest, bool is_average,
                            struct buffer **out, struct err *err);

/* Errors: INVALID for a run that keeps no average. */
int checkpoint_check_average(const char *run, const Weir__RunSpec *spec, struct err *err);

/* The pieces that the file of the run's model names; released with onnx_outline_fini. Errors: NOT_FOUND
   without the file; CORRUPT when it names others than it did. */
int checkpoint_run_pieces(struct store *store, const Weir__RunRecord *record, struct onnx_outline *pieces,
                          struct err *err);

/* A block of the store as a buffer, for ONNX files. */
int checkpoint_blob(struct store *store, const char *sha256, struct buffer **out, struct err *err);

struct checkpoint_damage {
  uint32_t blocks; /* of the checkpoint */
  uint64_t bytes;
  uint32_t n_damaged;
  char sha256[65]; /* weights_sha256 of the blocks; empty when damaged */
  /* Told of each block that is missing or damaged; may be NULL. */
  void (*each)(void *user, const char *line);
  void *user;
};

/* Re-hashes every block. Damage is no error: damage->n_damaged counts it. */
int checkpoint_verify(struct store *store, const Weir__Manifest *manifest, struct checkpoint_damage *damage,
                      struct err *err);

/* All blocks of the manifest are in the store (their hashes are not looked at). Errors: NOT_FOUND. */
int checkpoint_is_whole(struct store *store, const Weir__Manifest *manifest, struct err *err);

/* How many committed manifests and unfinished or kept runs refer to each block. A block that nothing refers
   to may be deleted. Not for several threads at a time. */
struct block_refs;
int block_refs_read(struct store *store, struct block_refs **refs, struct err *err);
void block_refs_free(struct block_refs *refs); /* NULL is ignored */
void block_refs_add(struct block_refs *refs, const Weir__Manifest *manifest);
/* Its model, whose file names these pieces (none: zeroed). */
void block_refs_add_run(struct block_refs *refs, const Weir__RunRecord *record,
                        const struct onnx_outline *pieces);
/* A sweep's model. */
void block_refs_add_sweep(struct block_refs *refs, const Weir__SweepHead *head);
/* Those pieces alone, of a run that is to be. Release deletes what nothing else refers to. */
void block_refs_add_pieces(struct block_refs *refs, const struct onnx_outline *pieces);
int block_refs_release_pieces(struct store *store, struct block_refs *refs, const struct onnx_outline *pieces,
                              struct err *err);
/* What has been deleted since the references were read. */
struct block_tally {
  uint64_t blocks, bytes;
};
struct block_tally block_refs_deleted(const struct block_refs *refs);
/* Whether several tenants' records refer to blocks, or did. */
bool block_refs_are_shared(const struct block_refs *refs);
/* Whether a record of the tenant refers to the block, or did while others do. False also where there are more
   than 64 tenants. */
bool block_refs_has(struct block_refs *refs, const char *tenant, const char *sha256);
/* From now on blocks are deleted only while that record holds this text; else the deletion ends with STALE.
 */
void block_refs_guard(struct block_refs *refs, const char *name, const char *content);

/* Checks that the manifest is whole and writes it if the guard holds: from then on the checkpoint exists. One
   that was there under its name is replaced, and its blocks are deleted where nothing else refers to them.
   Errors: NOT_FOUND, STALE. */
int checkpoint_commit(struct store *store, struct block_refs *refs, const Weir__Manifest *manifest,
                      const struct store_record *guard, struct err *err);

/* Deletes the manifest's record if the guard holds, then those of its blocks that nothing else refers to. If
   that is cut short, a sweep finds the blocks that are left. */
int checkpoint_delete(struct store *store, struct block_refs *refs, const char *name,
                      const struct store_record *guard, struct err *err);

/* Deletes the manifests of runs that have no record: of forks that were cut short before they had one. */
int checkpoint_delete_orphans(struct store *store, struct block_refs *refs, const struct store_record *guard,
                              struct err *err);

/* Deletes every block that nothing refers to, and the rests of writes that were cut short. *done is
   initialised: what was deleted since the references were read, and what is kept. Errors: CORRUPT when a
   record was unreadable that may refer to any block; no block is deleted then. */
int checkpoint_sweep(struct store *store, struct block_refs *refs, Weir__CollectGarbageReply *done,
                     struct err *err);

/* Deletes the records of a run and all its checkpoints. */
int checkpoint_delete_run(struct store *store, struct block_refs *refs, const char *run,
                          const struct store_record *guard, struct err *err);
/* Puts before an error which runs were deleted before it: all n, the first few by their ids. */
void checkpoint_tell_deleted(char *const *runs, int n, struct err *err);

#endif

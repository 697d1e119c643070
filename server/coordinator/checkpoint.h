/* Checkpoints in the store, as the coordinator reads and commits them. Every function blocks and may take
   long. */
#ifndef WEIR_SERVER_COORDINATOR_CHECKPOINT_H
#define WEIR_SERVER_COORDINATOR_CHECKPOINT_H

#include "common/memory.h"
#include "storage/store.h"
#include "store.pb-c.h"
#include "training.pb-c.h"

/* Reads back every block of the manifest, fills sha256 with the hash of the weights, and writes the manifest
   with it under "runs/RUN/checkpoints/STEP": from then on the checkpoint exists. Errors: those of the store;
   CORRUPT when a block is not of its size. */
int checkpoint_commit(struct store *store, const Weir__Manifest *manifest, char sha256[65], struct err *err);

/* The weights of a committed checkpoint as the client gets them: the flat parameter vector, then the flat
   statistics vector, f32 little-endian. *out is the caller's. Errors: as above, NOT_FOUND. */
int checkpoint_weights(struct store *store, const char *run, uint64_t step, struct buffer **out,
                       struct err *err);

/* A block of the store as a buffer, for ONNX files. */
int checkpoint_blob(struct store *store, const char *sha256, struct buffer **out, struct err *err);

#endif

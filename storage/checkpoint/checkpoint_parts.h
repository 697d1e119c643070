/* What the files of storage/checkpoint/checkpoint.h share among themselves. */
#ifndef WEIR_STORAGE_CHECKPOINT_CHECKPOINT_PARTS_H
#define WEIR_STORAGE_CHECKPOINT_CHECKPOINT_PARTS_H

#include "storage/checkpoint/checkpoint.h"

enum { RUN_ID_MAX = 64 };

bool checkpoint_is_key(const char *text);    /* 64 lower-case hex digits */
bool checkpoint_is_run_id(const char *text); /* [a-z0-9-]{1,64} */

/* The record at RUN/run or RUN/checkpoints/STEP below "runs/" that a name stands for. False: neither. */
struct record_place {
  char run[RUN_ID_MAX + 1];
  bool is_manifest; /* else the run's own record */
  uint64_t step;
};
bool checkpoint_parse_name(const char *name, struct record_place *place);

enum { BLOCK_KEY_BYTES = 32 };
typedef unsigned char block_key[BLOCK_KEY_BYTES];

/* Blocks that nothing refers to, to be deleted; in no order. items: freed by the caller. */
struct free_block {
  block_key key;
  uint64_t size_bytes; /* 0 where whatever referred to it last does not say */
};
struct free_blocks {
  struct free_block *items;
  int count, capacity;
};

/* Errors: CORRUPT when a record could not be read that may refer to any block. */
int block_refs_check(const struct block_refs *refs, struct err *err);
/* Adds the block where nothing refers to it; whether it did. */
bool block_refs_take_free(const struct block_refs *refs, const char *sha256, uint64_t size_bytes,
                          struct free_blocks *free_blocks);
/* The references of one manifest, or of one run to its model, are gone. Adds what nothing refers to any more.
 */
void block_refs_drop(struct block_refs *refs, const Weir__Manifest *manifest,
                     struct free_blocks *free_blocks);
void block_refs_drop_run(struct block_refs *refs, const Weir__RunRecord *record,
                         const struct onnx_outline *pieces, struct free_blocks *free_blocks);
/* Takes what the manifest refers to out of free_blocks. */
void block_refs_keep(struct block_refs *refs, const Weir__Manifest *manifest,
                     struct free_blocks *free_blocks);
/* Deletes them while the guard of block_refs_guard holds, and counts them. Errors: STALE, and those of the
   store. */
int block_refs_delete(struct store *store, struct block_refs *refs, const struct free_blocks *blocks,
                      struct err *err);

#endif

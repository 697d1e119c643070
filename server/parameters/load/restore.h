/* Reading a run's blocks back from a checkpoint. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_RESTORE_H
#define WEIR_SERVER_PARAMETERS_LOAD_RESTORE_H

#include "server/parameters/load/hosted_run.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/identity.h"

/* Reading from a store that may be away: it is asked again until it has not answered for patience_ms. */
struct restore {
  struct store *store;
  int patience_ms;
  /* Waits. False: the run is no longer wanted. */
  bool (*pause)(void *user, int pause_ms);
  void *user;
};

/* Which store it is. Errors: NOT_FOUND: it has no identity; CORRUPT; CANCELLED; those of the store when its
   time is over. */
int restore_identity(const struct restore *restore, char identity[STORE_IDENTITY_SIZE], struct err *err);

/* The checkpoint that the order names. Blocks. Errors: NOT_FOUND and CORRUPT (also when it is not the run's
   at that version): it is lost; CANCELLED; those of the store when its time is over. */
int restore_manifest(const struct restore *restore, const Weir__LoadRun *order, Weir__Manifest **manifest,
                     struct err *err);

/* How the checkpoint's blocks are laid out, where that is not the run's own way; else nothing is in *out.
   Errors: those of a spec that the manifest should not have. */
int restore_find_layout(const struct hosted_run *run, const Weir__Manifest *manifest,
                        struct block_layout *out, bool *is_otherwise, struct err *err);

/* What was read. */
struct restored {
  uint32_t n_blocks;
  uint64_t bytes;
};

/* Fills the blocks of a new run, a batch at a time, each copied once to its place; those that were adopted
   (adopt.h) are not read. Errors: as above; the text names block and key. */
int restore_blocks(const struct restore *restore, struct hosted_run *run, const Weir__Manifest *manifest,
                   struct restored *out, struct err *err);

#endif

/* A checkpoint comes to be, and goes: the one write of its manifest. */
#include <stdlib.h>

#include "common/base/message.h"
#include "storage/checkpoint/checkpoint_parts.h"

int checkpoint_commit(struct store *store, struct block_refs *refs, const Weir__Manifest *manifest,
                      const struct store_record *guard, struct err *err) {
  char *name = checkpoint_name(manifest->run, manifest->step);
  struct free_blocks free_blocks = {0};
  void *replaced = NULL;
  int rc = checkpoint_is_whole(store, manifest, err);
  if (rc)
    goto out;
  rc = checkpoint_read_record(store, name, &weir__manifest__descriptor, &replaced, err);
  if (rc && rc != ERR_NOT_FOUND && rc != ERR_CORRUPT)
    goto out;
  *err = ERR_NONE;
  block_refs_add(refs, manifest); /* also when nobody knows whether it was written: its blocks must not go */
  rc = checkpoint_write_record(store, name, manifest, guard, err);
  if (rc == ERR_STALE)
    block_refs_drop(refs, manifest, &free_blocks);
  if (rc)
    goto out;
  if (replaced) {
    block_refs_drop(refs, replaced, &free_blocks);
    block_refs_keep(refs, manifest, &free_blocks);
    block_refs_delete(store, refs, &free_blocks, err);
    *err = ERR_NONE; /* it is committed; what is left the next sweep finds */
  }
out:
  free(free_blocks.items);
  message_free(replaced);
  free(name);
  return rc;
}

int checkpoint_delete(struct store *store, struct block_refs *refs, const char *name,
                      const struct store_record *guard, struct err *err) {
  struct free_blocks free_blocks = {0};
  void *manifest;
  int rc = checkpoint_read_record(store, name, &weir__manifest__descriptor, &manifest, err);
  if (rc && rc != ERR_CORRUPT && rc != ERR_NOT_FOUND)
    return rc;
  *err = ERR_NONE;
  if (rc == ERR_NOT_FOUND)
    return 0;
  rc = store_delete_record(store, name, guard, err);
  if (!rc && manifest) {
    block_refs_drop(refs, manifest, &free_blocks);
    rc = block_refs_delete(store, refs, &free_blocks, err);
  }
  free(free_blocks.items);
  message_free(manifest);
  return rc;
}

/* What goes from a store: runs, and blocks that nothing refers to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { REST_AGE_S = 3600, RUNS_NAMED = 10 };

struct sweep {
  struct block_refs *refs;
  struct free_blocks garbage;
  Weir__CollectGarbageReply *done;
};

static int sweep_one(void *user, const char *key, uint64_t size_bytes) {
  struct sweep *sweep = user;
  if (!checkpoint_is_key(key))
    return 0;
  if (!block_refs_take_free(sweep->refs, key, size_bytes, &sweep->garbage)) {
    sweep->done->kept_blocks++;
    sweep->done->kept_bytes += size_bytes;
  }
  return 0;
}

int checkpoint_sweep(struct store *store, struct block_refs *refs, Weir__CollectGarbageReply *done,
                     struct err *err) {
  struct sweep sweep = {.refs = refs, .done = done};
  int rc;
  weir__collect_garbage_reply__init(done);
  if (block_refs_check(refs, err))
    return err->code;
  rc = store_list_blocks(store, sweep_one, &sweep, err);
  if (!rc)
    rc = block_refs_delete(store, refs, &sweep.garbage, err);
  done->blocks = block_refs_deleted(refs).blocks;
  done->bytes = block_refs_deleted(refs).bytes;
  if (!rc)
    rc = store_sweep(store, REST_AGE_S, err);
  free(sweep.garbage.items);
  return rc;
}

static bool has_record(const struct store_names *names, const char *run) {
  char *own = checkpoint_run_name(run, "run");
  bool has = false;
  for (int i = 0; i < names->count && !has; i++)
    has = strcmp(names->items[i], own) == 0;
  free(own);
  return has;
}

/* The names are sorted: those of a run are neighbours. */
int checkpoint_delete_orphans(struct store *store, struct block_refs *refs, const struct store_record *guard,
                              struct err *err) {
  struct store_names names = {0};
  struct record_place place;
  char known[sizeof place.run] = "";
  int rc = store_list_records(store, "runs/", &names, err);
  for (int i = 0; i < names.count && !rc; i++) {
    if (!checkpoint_parse_name(names.items[i], &place) || !place.is_manifest || strcmp(place.run, known) == 0)
      continue;
    if (has_record(&names, place.run))
      strcpy(known, place.run);
    else
      rc = checkpoint_delete(store, refs, names.items[i], guard, err);
  }
  store_names_fini(&names);
  return rc;
}

/* The run's own record goes last: while it is there, the deletion can be asked for again. */
int checkpoint_delete_run(struct store *store, struct block_refs *refs, const char *run,
                          const struct store_record *guard, struct err *err) {
  struct store_names names = {0};
  struct free_blocks free_blocks = {0};
  char *prefix = checkpoint_run_name(run, ""), *own = checkpoint_run_name(run, "run");
  struct onnx_outline pieces = {0};
  void *record = NULL;
  int rc = store_list_records(store, prefix, &names, err);
  for (int i = 0; i < names.count && !rc; i++) {
    struct record_place place;
    if (strcmp(names.items[i], own) == 0)
      continue;
    if (checkpoint_parse_name(names.items[i], &place) && place.is_manifest)
      rc = checkpoint_delete(store, refs, names.items[i], guard, err);
    else
      rc = store_delete_record(store, names.items[i], guard, err);
  }
  if (!rc)
    rc = checkpoint_read_record(store, own, &weir__run_record__descriptor, &record, err);
  if (rc == 0) { /* without the file its pieces are left to a sweep */
    rc = checkpoint_run_pieces(store, record, &pieces, err);
    rc = rc == ERR_NOT_FOUND ? 0 : rc;
  }
  if (rc == ERR_CORRUPT || rc == 0) {
    *err = ERR_NONE;
    rc = store_delete_record(store, own, guard, err);
  }
  if (!rc && record) {
    block_refs_drop_run(refs, record, &pieces, &free_blocks);
    rc = block_refs_delete(store, refs, &free_blocks, err);
  }
  free(free_blocks.items);
  onnx_outline_fini(&pieces);
  message_free(record);
  store_names_fini(&names);
  free(prefix);
  free(own);
  return rc;
}

void checkpoint_tell_deleted(char *const *runs, int n, struct err *err) {
  char text[RUNS_NAMED * (RUN_ID_MAX + 2) + 64] = "";
  size_t length = 0;
  for (int i = 0; i < n && i < RUNS_NAMED; i++)
    length +=
        (size_t)snprintf(text + length, sizeof text - length, "%s%.*s", i ? ", " : "", RUN_ID_MAX, runs[i]);
  if (n > RUNS_NAMED)
    snprintf(text + length, sizeof text - length, " and %d more", n - RUNS_NAMED);
  if (n > 0)
    err_prefix(err, "deleted %s; then", text);
}

/* What may go from the store, and going: references to blocks, commits, deletions, sweeps. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { KEY_BYTES = 32, SLOTS_LEAST = 1024, REST_AGE_S = 3600 };

typedef unsigned char block_key[KEY_BYTES];

/* An open-addressing hash table by the first bytes of the SHA, which are as good as random. */
struct block_ref {
  block_key key;
  uint32_t count;
  bool is_used; /* count may be 0: referred to once */
};

struct block_refs {
  struct block_ref *slots;
  size_t n_slots, n_used; /* n_slots is a power of two */
  int n_unreadable;       /* records whose blocks are not known */
  char *unreadable;       /* the name of one; NULL: none */
  char *guard_name, *guard_content;
};

/* Keys to delete, in no order. */
struct key_list {
  block_key *items;
  int count, capacity;
};

static int read_names(struct store *store, struct block_refs *refs, const struct store_names *names,
                      struct err *err);
static struct block_ref *find_slot(const struct block_refs *refs, const block_key key);
static void ref_add(struct block_refs *refs, const char *sha256);
static void ref_drop(struct block_refs *refs, const char *sha256, struct key_list *free_keys);
static void ref_keep(struct block_refs *refs, const char *sha256);
static void drop_manifest(struct block_refs *refs, const Weir__Manifest *manifest,
                          struct key_list *free_keys);
static void keep_manifest(struct block_refs *refs, const Weir__Manifest *manifest,
                          struct key_list *free_keys);
static int delete_keys(struct store *store, const struct block_refs *refs, const struct key_list *keys,
                       struct err *err);
static int check_guard(struct store *store, const struct block_refs *refs, struct err *err);

static void key_from_hex(const char *sha256, block_key key) {
  for (int i = 0; i < KEY_BYTES; i++) {
    char high = sha256[2 * i], low = sha256[2 * i + 1];
    key[i] = (unsigned char)((high <= '9' ? high - '0' : high - 'a' + 10) << 4 |
                             (low <= '9' ? low - '0' : low - 'a' + 10));
  }
}

static void key_to_hex(const block_key key, char sha256[STORE_KEY_SIZE]) {
  for (int i = 0; i < KEY_BYTES; i++) {
    sha256[2 * i] = "0123456789abcdef"[key[i] >> 4];
    sha256[2 * i + 1] = "0123456789abcdef"[key[i] & 15];
  }
  sha256[2 * KEY_BYTES] = 0;
}

int block_refs_read(struct store *store, struct block_refs **out, struct err *err) {
  struct block_refs *refs = mem_new(sizeof *refs);
  struct store_names names = {0};
  int rc;
  refs->n_slots = SLOTS_LEAST;
  refs->slots = mem_new(refs->n_slots * sizeof *refs->slots);
  rc = store_list_records(store, "runs/", &names, err);
  if (!rc)
    rc = read_names(store, refs, &names, err);
  store_names_fini(&names);
  *out = rc ? NULL : refs;
  if (rc)
    block_refs_free(refs);
  return rc;
}

static int read_names(struct store *store, struct block_refs *refs, const struct store_names *names,
                      struct err *err) {
  for (int i = 0; i < names->count; i++) {
    const char *name = names->items[i];
    struct record_place place;
    void *message;
    int rc;
    if (!checkpoint_parse_name(name, &place))
      continue;
    rc = checkpoint_read_record(
        store, name, place.is_manifest ? &weir__manifest__descriptor : &weir__run_record__descriptor,
        &message, err);
    if (rc == 0 && place.is_manifest)
      block_refs_add(refs, message);
    else if (rc == 0)
      block_refs_add_model(refs, ((Weir__RunRecord *)message)->model_sha256);
    else if (rc == ERR_CORRUPT) {
      log_event(LOG_ERROR, "store", "record_unreadable", "name=%s reason=\"%s\"", name, err->text);
      refs->n_unreadable++;
      if (!refs->unreadable)
        refs->unreadable = mem_strdup(name);
    } else if (rc != ERR_NOT_FOUND) /* deleted meanwhile */
      return rc;
    message_free(message);
    *err = ERR_NONE;
  }
  return 0;
}

void block_refs_free(struct block_refs *refs) {
  if (!refs)
    return;
  free(refs->slots);
  free(refs->unreadable);
  free(refs->guard_name);
  free(refs->guard_content);
  free(refs);
}

void block_refs_guard(struct block_refs *refs, const char *name, const char *content) {
  free(refs->guard_name);
  free(refs->guard_content);
  refs->guard_name = mem_strdup(name);
  refs->guard_content = mem_strdup(content);
}

void block_refs_add(struct block_refs *refs, const Weir__Manifest *manifest) {
  ref_add(refs, manifest->model_sha256);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_add(refs, manifest->blocks[i]->sha256);
}

void block_refs_add_model(struct block_refs *refs, const char *sha256) {
  ref_add(refs, sha256);
}

int checkpoint_commit(struct store *store, struct block_refs *refs, const Weir__Manifest *manifest,
                      const struct store_record *guard, struct err *err) {
  char *name = checkpoint_name(manifest->run, manifest->step);
  struct key_list free_keys = {0};
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
    drop_manifest(refs, manifest, &free_keys);
  if (rc)
    goto out;
  if (replaced) {
    drop_manifest(refs, replaced, &free_keys);
    keep_manifest(refs, manifest, &free_keys);
    delete_keys(store, refs, &free_keys, err);
    *err = ERR_NONE; /* it is committed; what is left the next sweep finds */
  }
out:
  free(free_keys.items);
  message_free(replaced);
  free(name);
  return rc;
}

int checkpoint_delete(struct store *store, struct block_refs *refs, const char *name,
                      const struct store_record *guard, struct err *err) {
  struct key_list free_keys = {0};
  void *manifest;
  int rc = checkpoint_read_record(store, name, &weir__manifest__descriptor, &manifest, err);
  if (rc && rc != ERR_CORRUPT && rc != ERR_NOT_FOUND)
    return rc;
  *err = ERR_NONE;
  if (rc == ERR_NOT_FOUND)
    return 0;
  rc = store_delete_record(store, name, guard, err);
  if (!rc && manifest) {
    drop_manifest(refs, manifest, &free_keys);
    rc = delete_keys(store, refs, &free_keys, err);
  }
  free(free_keys.items);
  message_free(manifest);
  return rc;
}

struct sweep {
  const struct block_refs *refs;
  struct key_list garbage;
  Weir__CollectGarbageReply *done;
};

static int sweep_one(void *user, const char *key, uint64_t size_bytes) {
  struct sweep *sweep = user;
  const struct block_ref *slot;
  block_key binary;
  if (!checkpoint_is_key(key))
    return 0;
  key_from_hex(key, binary);
  slot = find_slot(sweep->refs, binary);
  if (slot->is_used && slot->count) {
    sweep->done->kept_blocks++;
    sweep->done->kept_bytes += size_bytes;
    return 0;
  }
  array_reserve((void **)&sweep->garbage.items, &sweep->garbage.capacity, sweep->garbage.count,
                sizeof *sweep->garbage.items);
  memcpy(sweep->garbage.items[sweep->garbage.count++], binary, sizeof binary);
  sweep->done->blocks++;
  sweep->done->bytes += size_bytes;
  return 0;
}

int checkpoint_sweep(struct store *store, const struct block_refs *refs, Weir__CollectGarbageReply *done,
                     struct err *err) {
  struct sweep sweep = {.refs = refs, .done = done};
  int rc;
  weir__collect_garbage_reply__init(done);
  if (refs->n_unreadable)
    return err_set(err, ERR_CORRUPT,
                   "store: %d records cannot be read (%s is one): nothing is deleted, for nobody knows their "
                   "blocks; delete their runs first",
                   refs->n_unreadable, refs->unreadable);
  rc = store_list_blocks(store, sweep_one, &sweep, err);
  if (!rc)
    rc = delete_keys(store, refs, &sweep.garbage, err);
  if (!rc)
    rc = store_sweep(store, REST_AGE_S, err);
  free(sweep.garbage.items);
  return rc;
}

/* The run's own record goes last: while it is there, the deletion can be asked for again. */
int checkpoint_delete_run(struct store *store, struct block_refs *refs, const char *run,
                          const struct store_record *guard, struct err *err) {
  struct store_names names = {0};
  struct key_list free_keys = {0};
  char *prefix = checkpoint_run_name(run, ""), *own = checkpoint_run_name(run, "run");
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
  if (rc == ERR_CORRUPT || rc == 0) {
    *err = ERR_NONE;
    rc = store_delete_record(store, own, guard, err);
  }
  if (!rc && record) {
    ref_drop(refs, ((Weir__RunRecord *)record)->model_sha256, &free_keys);
    rc = delete_keys(store, refs, &free_keys, err);
  }
  free(free_keys.items);
  message_free(record);
  store_names_fini(&names);
  free(prefix);
  free(own);
  return rc;
}

/* The slot of the key, or the empty one where it would be. */
static struct block_ref *find_slot(const struct block_refs *refs, const block_key key) {
  uint64_t hash;
  memcpy(&hash, key, sizeof hash);
  for (size_t i = hash & (refs->n_slots - 1);; i = (i + 1) & (refs->n_slots - 1)) {
    struct block_ref *slot = &refs->slots[i];
    if (!slot->is_used || memcmp(slot->key, key, KEY_BYTES) == 0)
      return slot;
  }
}

/* Makes room, and leaves out what nothing refers to any more. */
static void refs_rehash(struct block_refs *refs) {
  struct block_refs old = *refs;
  size_t n_live = 0;
  for (size_t i = 0; i < old.n_slots; i++)
    n_live += old.slots[i].count > 0;
  for (refs->n_slots = SLOTS_LEAST; refs->n_slots < 3 * n_live;)
    refs->n_slots *= 2;
  refs->slots = mem_new(refs->n_slots * sizeof *refs->slots);
  refs->n_used = n_live;
  for (size_t i = 0; i < old.n_slots; i++)
    if (old.slots[i].count)
      *find_slot(refs, old.slots[i].key) = old.slots[i];
  free(old.slots);
}

static void ref_add(struct block_refs *refs, const char *sha256) {
  struct block_ref *slot;
  block_key key;
  if (!checkpoint_is_key(sha256))
    return;
  if (3 * (refs->n_used + 1) > 2 * refs->n_slots)
    refs_rehash(refs);
  key_from_hex(sha256, key);
  slot = find_slot(refs, key);
  if (!slot->is_used) {
    refs->n_used++;
    slot->is_used = true;
    memcpy(slot->key, key, sizeof key);
  }
  slot->count++;
}

static void ref_drop(struct block_refs *refs, const char *sha256, struct key_list *free_keys) {
  struct block_ref *slot;
  block_key key;
  if (!checkpoint_is_key(sha256))
    return;
  key_from_hex(sha256, key);
  slot = find_slot(refs, key);
  if (!slot->is_used || slot->count == 0 || --slot->count)
    return;
  array_reserve((void **)&free_keys->items, &free_keys->capacity, free_keys->count, sizeof *free_keys->items);
  memcpy(free_keys->items[free_keys->count++], key, sizeof key);
}

static void drop_manifest(struct block_refs *refs, const Weir__Manifest *manifest,
                          struct key_list *free_keys) {
  ref_drop(refs, manifest->model_sha256, free_keys);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_drop(refs, manifest->blocks[i]->sha256, free_keys);
}

/* A manifest may have reached the store after its answer was given up and the references were read: it was
   not counted. When the next attempt replaces it, the blocks that both refer to have to stay. */
static void keep_manifest(struct block_refs *refs, const Weir__Manifest *manifest,
                          struct key_list *free_keys) {
  int n_free = 0;
  if (free_keys->count == 0)
    return;
  ref_keep(refs, manifest->model_sha256);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_keep(refs, manifest->blocks[i]->sha256);
  for (int i = 0; i < free_keys->count; i++)
    if (find_slot(refs, free_keys->items[i])->count == 0)
      memmove(free_keys->items[n_free++], free_keys->items[i], sizeof(block_key));
  free_keys->count = n_free;
}

static void ref_keep(struct block_refs *refs, const char *sha256) {
  block_key key;
  if (!checkpoint_is_key(sha256))
    return;
  key_from_hex(sha256, key);
  if (find_slot(refs, key)->count == 0)
    ref_add(refs, sha256);
}

static int delete_keys(struct store *store, const struct block_refs *refs, const struct key_list *keys,
                       struct err *err) {
  for (int begin = 0; begin < keys->count; begin += STORE_BATCH_MAX) {
    char hex[STORE_BATCH_MAX][STORE_KEY_SIZE];
    const char *batch[STORE_BATCH_MAX];
    int n = keys->count - begin < STORE_BATCH_MAX ? keys->count - begin : STORE_BATCH_MAX;
    for (int i = 0; i < n; i++) {
      key_to_hex(keys->items[begin + i], hex[i]);
      batch[i] = hex[i];
    }
    if (check_guard(store, refs, err) || store_delete_blocks(store, batch, n, err))
      return err->code;
  }
  return 0;
}

/* Blocks have no guards of their own: what was counted here may not hold any more once another may write. */
static int check_guard(struct store *store, const struct block_refs *refs, struct err *err) {
  void *data;
  size_t size;
  bool holds;
  int rc;
  if (!refs->guard_name)
    return 0;
  rc = store_get_record(store, refs->guard_name, &data, &size, err);
  if (rc && rc != ERR_NOT_FOUND)
    return rc;
  holds = rc == 0 && size == strlen(refs->guard_content) && memcmp(data, refs->guard_content, size) == 0;
  free(data);
  return holds ? 0 : err_set(err, ERR_STALE, "store: record %s has changed", refs->guard_name);
}

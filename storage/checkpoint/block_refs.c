/* How often each block of the store is referred to: what may go, and going. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "common/certs/names.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { SLOTS_LEAST = 1024, TENANTS_MAX = 64 };

/* An open-addressing hash table by the first bytes of the SHA, which are as good as random. */
struct block_ref {
  block_key key;
  uint32_t count;
  bool is_used;     /* count may be 0: referred to once */
  uint64_t tenants; /* a bit for each of refs->tenants that refers to it, or did while others do */
};

struct block_refs {
  struct block_ref *slots;
  size_t n_slots, n_used; /* n_slots is a power of two */
  int n_unreadable;       /* records whose blocks are not known */
  char *unreadable;       /* the name of one; NULL: none */
  char *guard_name, *guard_content;
  struct block_tally deleted;
  char *tenants[TENANTS_MAX]; /* of what refers to blocks: the first so many */
  int n_tenants;
};

/* A kind of record that refers to blocks. */
struct record_kind {
  const ProtobufCMessageDescriptor *type;
  int (*add)(struct store *store, struct block_refs *refs, const void *message, struct err *err);
};

static int read_names(struct store *store, struct block_refs *refs, const char *prefix,
                      const struct record_kind *(*kind_of)(const char *name), struct err *err);
static const struct record_kind *run_kind(const char *name);
static const struct record_kind *sweep_kind(const char *name);
static int add_manifest(struct store *store, struct block_refs *refs, const void *message, struct err *err);
static int add_sweep(struct store *store, struct block_refs *refs, const void *message, struct err *err);
static int add_run(struct store *store, struct block_refs *refs, const void *message, struct err *err);
static struct block_ref *find_slot(const struct block_refs *refs, const block_key key);
static uint64_t tenant_bit(struct block_refs *refs, const char *tenant);
static void ref_add(struct block_refs *refs, const char *sha256, uint64_t tenant);
static void ref_keep(struct block_refs *refs, const char *sha256, uint64_t tenant);
static int check_guard(struct store *store, const struct block_refs *refs, struct err *err);

static void key_from_hex(const char *sha256, block_key key) {
  for (int i = 0; i < BLOCK_KEY_BYTES; i++) {
    char high = sha256[2 * i], low = sha256[2 * i + 1];
    key[i] = (unsigned char)((high <= '9' ? high - '0' : high - 'a' + 10) << 4 |
                             (low <= '9' ? low - '0' : low - 'a' + 10));
  }
}

static void key_to_hex(const block_key key, char sha256[STORE_KEY_SIZE]) {
  for (int i = 0; i < BLOCK_KEY_BYTES; i++) {
    sha256[2 * i] = "0123456789abcdef"[key[i] >> 4];
    sha256[2 * i + 1] = "0123456789abcdef"[key[i] & 15];
  }
  sha256[2 * BLOCK_KEY_BYTES] = 0;
}

static void free_blocks_add(struct free_blocks *free_blocks, const block_key key, uint64_t size_bytes) {
  struct free_block *added;
  array_reserve((void **)&free_blocks->items, &free_blocks->capacity, free_blocks->count,
                sizeof *free_blocks->items);
  added = &free_blocks->items[free_blocks->count++];
  memcpy(added->key, key, sizeof added->key);
  added->size_bytes = size_bytes;
}

int block_refs_read(struct store *store, struct block_refs **out, struct err *err) {
  struct block_refs *refs = mem_new(sizeof *refs);
  refs->n_slots = SLOTS_LEAST;
  refs->slots = mem_new(refs->n_slots * sizeof *refs->slots);
  *out = NULL;
  if (read_names(store, refs, "runs/", run_kind, err) || read_names(store, refs, "sweeps/", sweep_kind, err))
    block_refs_free(refs);
  else
    *out = refs;
  return err->code;
}

/* NULL: it refers to none. */
static const struct record_kind *run_kind(const char *name) {
  static const struct record_kind run = {&weir__run_record__descriptor, add_run};
  static const struct record_kind manifest = {&weir__manifest__descriptor, add_manifest};
  struct record_place place;
  return !checkpoint_parse_name(name, &place) ? NULL : place.is_manifest ? &manifest : &run;
}

static const struct record_kind *sweep_kind(const char *name) {
  static const struct record_kind sweep = {&weir__sweep_head__descriptor, add_sweep};
  const char *last = strrchr(name, '/');
  return strcmp(last, "/sweep") == 0 ? &sweep : NULL;
}

static int read_names(struct store *store, struct block_refs *refs, const char *prefix,
                      const struct record_kind *(*kind_of)(const char *name), struct err *err) {
  struct store_names names = {0};
  int rc = store_list_records(store, prefix, &names, err);
  for (int i = 0; i < names.count && !rc; i++) {
    const char *name = names.items[i];
    const struct record_kind *kind = kind_of(name);
    void *message = NULL;
    if (!kind)
      continue;
    rc = checkpoint_read_record(store, name, kind->type, &message, err);
    if (!rc)
      rc = kind->add(store, refs, message, err);
    if (rc == ERR_CORRUPT) {
      log_event(LOG_ERROR, "store", "record_unreadable", "name=%s reason=\"%s\"", name, err->text);
      refs->n_unreadable++;
      if (!refs->unreadable)
        refs->unreadable = mem_strdup(name);
    }
    message_free(message);
    if (rc == ERR_CORRUPT || rc == ERR_NOT_FOUND) { /* deleted meanwhile */
      *err = ERR_NONE;
      rc = 0;
    }
  }
  store_names_fini(&names);
  return rc;
}

void block_refs_free(struct block_refs *refs) {
  if (!refs)
    return;
  free(refs->slots);
  for (int i = 0; i < refs->n_tenants; i++)
    free(refs->tenants[i]);
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
  uint64_t tenant = tenant_bit(refs, manifest->tenant);
  ref_add(refs, manifest->model_sha256, tenant);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_add(refs, manifest->blocks[i]->sha256, tenant);
}

void block_refs_add_sweep(struct block_refs *refs, const Weir__SweepHead *head) {
  uint64_t tenant = tenant_bit(refs, head->tenant);
  ref_add(refs, head->model_sha256, tenant);
  ref_add(refs, head->outline_sha256, tenant);
  for (size_t i = 0; i < head->n_files; i++) {
    ref_add(refs, head->files[i]->model_sha256, tenant);
    ref_add(refs, head->files[i]->outline_sha256, tenant);
  }
}

static int add_manifest(struct store *store, struct block_refs *refs, const void *message, struct err *err) {
  (void)store;
  (void)err;
  block_refs_add(refs, message);
  return 0;
}

static int add_sweep(struct store *store, struct block_refs *refs, const void *message, struct err *err) {
  (void)store;
  (void)err;
  block_refs_add_sweep(refs, message);
  return 0;
}

static void add_pieces(struct block_refs *refs, const struct onnx_outline *pieces, uint64_t tenant) {
  for (size_t i = 0; i < pieces->n_named; i++)
    ref_add(refs, pieces->named[i].key, tenant);
}

void block_refs_add_pieces(struct block_refs *refs, const struct onnx_outline *pieces) {
  add_pieces(refs, pieces, 0);
}

void block_refs_add_run(struct block_refs *refs, const Weir__RunRecord *record,
                        const struct onnx_outline *pieces) {
  uint64_t tenant = tenant_bit(refs, record->tenant);
  ref_add(refs, record->model_sha256, tenant);
  ref_add(refs, record->outline_sha256, tenant);
  add_pieces(refs, pieces, tenant);
}

int checkpoint_run_pieces(struct store *store, const Weir__RunRecord *record, struct onnx_outline *pieces,
                          struct err *err) {
  void *file;
  size_t size;
  *pieces = (struct onnx_outline){0};
  if (record->model_pieces == 0)
    return 0;
  if (store_get(store, record->model_sha256, &file, &size, err))
    return err_prefix(err, "the model of run '%.100s'", record->run);
  onnx_outline_names(file, size, pieces);
  free(file);
  if (pieces->n_named == record->model_pieces)
    return 0;
  onnx_outline_fini(pieces);
  return err_set(err, ERR_CORRUPT, "the model of run '%.100s' does not name the pieces that it had",
                 record->run);
}

/* A model that the store has lost names nothing any more. */
static int add_run(struct store *store, struct block_refs *refs, const void *message, struct err *err) {
  const Weir__RunRecord *record = message;
  struct onnx_outline pieces;
  int rc = checkpoint_run_pieces(store, record, &pieces, err);
  if (!rc || rc == ERR_NOT_FOUND)
    block_refs_add_run(refs, record, &pieces);
  onnx_outline_fini(&pieces);
  return rc;
}

int block_refs_check(const struct block_refs *refs, struct err *err) {
  if (refs->n_unreadable == 0)
    return ERR_OK;
  return err_set(err, ERR_CORRUPT,
                 "store: %d records cannot be read (%s is one): no block is deleted, for nobody knows their "
                 "blocks; delete their runs first",
                 refs->n_unreadable, refs->unreadable);
}

bool block_refs_take_free(const struct block_refs *refs, const char *sha256, uint64_t size_bytes,
                          struct free_blocks *free_blocks) {
  const struct block_ref *slot;
  block_key key;
  key_from_hex(sha256, key);
  slot = find_slot(refs, key);
  if (slot->is_used && slot->count)
    return false;
  free_blocks_add(free_blocks, key, size_bytes);
  return true;
}

static void ref_drop(struct block_refs *refs, const char *sha256, uint64_t size_bytes,
                     struct free_blocks *free_blocks) {
  struct block_ref *slot;
  block_key key;
  if (!checkpoint_is_key(sha256))
    return;
  key_from_hex(sha256, key);
  slot = find_slot(refs, key);
  if (!slot->is_used || slot->count == 0 || --slot->count)
    return;
  slot->tenants = 0;
  free_blocks_add(free_blocks, key, size_bytes);
}

void block_refs_drop_run(struct block_refs *refs, const Weir__RunRecord *record,
                         const struct onnx_outline *pieces, struct free_blocks *free_blocks) {
  ref_drop(refs, record->model_sha256, record->model_bytes, free_blocks);
  ref_drop(refs, record->outline_sha256, record->outline_bytes, free_blocks);
  for (size_t i = 0; i < pieces->n_named; i++)
    ref_drop(refs, pieces->named[i].key, pieces->named[i].size_bytes, free_blocks);
}

int block_refs_release_pieces(struct store *store, struct block_refs *refs, const struct onnx_outline *pieces,
                              struct err *err) {
  struct free_blocks free_blocks = {0};
  int rc;
  for (size_t i = 0; i < pieces->n_named; i++)
    ref_drop(refs, pieces->named[i].key, pieces->named[i].size_bytes, &free_blocks);
  rc = block_refs_delete(store, refs, &free_blocks, err);
  free(free_blocks.items);
  return rc;
}

void block_refs_drop(struct block_refs *refs, const Weir__Manifest *manifest,
                     struct free_blocks *free_blocks) {
  ref_drop(refs, manifest->model_sha256, 0, free_blocks);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_drop(refs, manifest->blocks[i]->sha256, manifest->blocks[i]->bytes, free_blocks);
}

/* A manifest may have reached the store after its answer was given up and the references were read: it was
   not counted. When the next attempt replaces it, the blocks that both refer to have to stay. */
void block_refs_keep(struct block_refs *refs, const Weir__Manifest *manifest,
                     struct free_blocks *free_blocks) {
  uint64_t tenant;
  int n_free = 0;
  if (free_blocks->count == 0)
    return;
  tenant = tenant_bit(refs, manifest->tenant);
  ref_keep(refs, manifest->model_sha256, tenant);
  for (size_t i = 0; i < manifest->n_blocks; i++)
    ref_keep(refs, manifest->blocks[i]->sha256, tenant);
  for (int i = 0; i < free_blocks->count; i++)
    if (find_slot(refs, free_blocks->items[i].key)->count == 0)
      free_blocks->items[n_free++] = free_blocks->items[i];
  free_blocks->count = n_free;
}

int block_refs_delete(struct store *store, struct block_refs *refs, const struct free_blocks *blocks,
                      struct err *err) {
  for (int begin = 0; begin < blocks->count; begin += STORE_BATCH_MAX) {
    char hex[STORE_BATCH_MAX][STORE_KEY_SIZE];
    const char *batch[STORE_BATCH_MAX];
    int n = blocks->count - begin < STORE_BATCH_MAX ? blocks->count - begin : STORE_BATCH_MAX;
    for (int i = 0; i < n; i++) {
      key_to_hex(blocks->items[begin + i].key, hex[i]);
      batch[i] = hex[i];
    }
    if (check_guard(store, refs, err) || store_delete_blocks(store, batch, n, err))
      return err->code;
    refs->deleted.blocks += (uint64_t)n;
    for (int i = 0; i < n; i++)
      refs->deleted.bytes += blocks->items[begin + i].size_bytes;
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

/* The slot of the key, or the empty one where it would be. */
static struct block_ref *find_slot(const struct block_refs *refs, const block_key key) {
  uint64_t hash;
  memcpy(&hash, key, sizeof hash);
  for (size_t i = hash & (refs->n_slots - 1);; i = (i + 1) & (refs->n_slots - 1)) {
    struct block_ref *slot = &refs->slots[i];
    if (!slot->is_used || memcmp(slot->key, key, BLOCK_KEY_BYTES) == 0)
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

static void ref_add(struct block_refs *refs, const char *sha256, uint64_t tenant) {
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
  slot->tenants |= tenant;
}

static void ref_keep(struct block_refs *refs, const char *sha256, uint64_t tenant) {
  block_key key;
  if (!checkpoint_is_key(sha256))
    return;
  key_from_hex(sha256, key);
  if (find_slot(refs, key)->count == 0)
    ref_add(refs, sha256, tenant);
}

/* 0: there are more than can be told apart. */
static uint64_t tenant_bit(struct block_refs *refs, const char *tenant) {
  const char *name = *tenant ? tenant : CERT_TENANT_DEFAULT;
  int at = 0;
  while (at < refs->n_tenants && strcmp(refs->tenants[at], name) != 0)
    at++;
  if (at == TENANTS_MAX)
    return 0;
  if (at == refs->n_tenants)
    refs->tenants[refs->n_tenants++] = mem_strdup(name);
  return UINT64_C(1) << at;
}

struct block_tally block_refs_deleted(const struct block_refs *refs) {
  return refs->deleted;
}

bool block_refs_are_shared(const struct block_refs *refs) {
  return refs->n_tenants > 1;
}

bool block_refs_has(struct block_refs *refs, const char *tenant, const char *sha256) {
  block_key key;
  if (!checkpoint_is_key(sha256))
    return false;
  key_from_hex(sha256, key);
  return find_slot(refs, key)->tenants & tenant_bit(refs, tenant);
}

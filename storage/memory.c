/* The memory: store, for tests: it lives as long as it is open. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "storage/store.h"

/* A block or a record. */
struct entry {
  char *name;
  void *data;
  size_t size;
};

struct entries {
  struct entry *items;
  int count, capacity;
};

struct memory_store {
  struct store base;
  pthread_mutex_t lock; /* what follows */
  struct entries blocks, records;
};

extern const struct store_def store_memory;

static struct memory_store *store_locked(struct store *base) {
  struct memory_store *store = (struct memory_store *)base;
  pthread_mutex_lock(&store->lock);
  return store;
}

static struct entry *entry_find(struct entries *entries, const char *name) {
  for (int i = 0; i < entries->count; i++)
    if (strcmp(entries->items[i].name, name) == 0)
      return &entries->items[i];
  return NULL;
}

/* Takes data. */
static void entry_set(struct entries *entries, const char *name, void *data, size_t size) {
  struct entry *entry = entry_find(entries, name);
  if (!entry) {
    array_reserve((void **)&entries->items, &entries->capacity, entries->count, sizeof *entries->items);
    entry = &entries->items[entries->count++];
    *entry = (struct entry){.name = mem_strdup(name)};
  }
  free(entry->data);
  entry->data = data;
  entry->size = size;
}

static void entry_remove(struct entries *entries, const char *name) {
  struct entry *entry = entry_find(entries, name);
  if (!entry)
    return;
  free(entry->name);
  free(entry->data);
  *entry = entries->items[--entries->count];
}

static void entries_fini(struct entries *entries) {
  while (entries->count)
    entry_remove(entries, entries->items[0].name);
  free(entries->items);
}

static void *bytes_copy(const void *data, size_t size) {
  void *bytes = mem_new(size + 1);
  memcpy(bytes, data, size);
  return bytes;
}

static int memory_open(const char *url, struct store **out, struct err *err) {
  struct memory_store *store = mem_new(sizeof *store);
  (void)url;
  (void)err;
  store->base.def = &store_memory;
  pthread_mutex_init(&store->lock, NULL);
  *out = &store->base;
  return 0;
}

static void memory_close(struct store *base) {
  struct memory_store *store = (struct memory_store *)base;
  entries_fini(&store->blocks);
  entries_fini(&store->records);
  pthread_mutex_destroy(&store->lock);
  free(store);
}

static int memory_put_blocks(struct store *base, const struct store_block *blocks, int n, struct err *err) {
  struct memory_store *store = store_locked(base);
  (void)err;
  for (int i = 0; i < n; i++) {
    size_t size = 0;
    char *data;
    if (blocks[i].was_there)
      continue;
    for (int p = 0; p < blocks[i].n_parts; p++)
      size += blocks[i].parts[p].iov_len;
    data = mem_new(size + 1);
    size = 0;
    for (int p = 0; p < blocks[i].n_parts; p++) {
      memcpy(data + size, blocks[i].parts[p].iov_base, blocks[i].parts[p].iov_len);
      size += blocks[i].parts[p].iov_len;
    }
    entry_set(&store->blocks, blocks[i].sha256, data, size);
  }
  pthread_mutex_unlock(&store->lock);
  return 0;
}

static int memory_has_blocks(struct store *base, const char *const *keys, int n, bool *has, struct err *err) {
  struct memory_store *store = store_locked(base);
  (void)err;
  for (int i = 0; i < n; i++)
    has[i] = entry_find(&store->blocks, keys[i]) != NULL;
  pthread_mutex_unlock(&store->lock);
  return 0;
}

static int memory_get_blocks(struct store *base, struct store_read *reads, int n, struct err *err) {
  struct memory_store *store = store_locked(base);
  (void)err;
  for (int i = 0; i < n; i++) {
    const struct entry *entry = entry_find(&store->blocks, reads[i].key);
    reads[i].data = entry ? bytes_copy(entry->data, entry->size) : NULL;
    reads[i].size = entry ? entry->size : 0;
  }
  pthread_mutex_unlock(&store->lock);
  return 0;
}

static int memory_delete_blocks(struct store *base, const char *const *keys, int n, struct err *err) {
  struct memory_store *store = store_locked(base);
  (void)err;
  for (int i = 0; i < n; i++)
    entry_remove(&store->blocks, keys[i]);
  pthread_mutex_unlock(&store->lock);
  return 0;
}

/* `each` is called without the lock: it may use the store. */
static int memory_list_blocks(struct store *base,
                              int (*each)(void *user, const char *key, uint64_t size_bytes), void *user,
                              struct err *err) {
  struct memory_store *store = store_locked(base);
  int n = store->blocks.count, rc = 0;
  struct entry *listed = mem_new((size_t)n * sizeof *listed + 1);
  (void)err;
  for (int i = 0; i < n; i++)
    listed[i] =
        (struct entry){.name = mem_strdup(store->blocks.items[i].name), .size = store->blocks.items[i].size};
  pthread_mutex_unlock(&store->lock);
  for (int i = 0; i < n; i++) {
    if (!rc)
      rc = each(user, listed[i].name, listed[i].size);
    free(listed[i].name);
  }
  free(listed);
  return rc;
}

static bool guard_holds(struct memory_store *store, const struct store_record *guard) {
  const struct entry *entry = entry_find(&store->records, guard->name);
  if (!entry || !guard->data)
    return !entry && !guard->data;
  return entry->size == guard->size && memcmp(entry->data, guard->data, guard->size) == 0;
}

static int memory_write_record(struct store *base, const struct store_record *record, struct err *err) {
  struct memory_store *store = store_locked(base);
  int rc = 0;
  for (const struct store_record *guard = record->guard; guard && !rc; guard = guard->guard)
    if (!guard_holds(store, guard))
      rc = err_set(err, ERR_STALE, "store: record %s is not what the writer knows", guard->name);
  if (!rc && record->data)
    entry_set(&store->records, record->name, bytes_copy(record->data, record->size), record->size);
  else if (!rc)
    entry_remove(&store->records, record->name);
  pthread_mutex_unlock(&store->lock);
  return rc;
}

static int memory_get_record(struct store *base, const char *name, void **data, size_t *size,
                             struct err *err) {
  struct memory_store *store = store_locked(base);
  const struct entry *entry = entry_find(&store->records, name);
  if (entry) {
    *data = bytes_copy(entry->data, entry->size);
    *size = entry->size;
  } else
    err_set(err, ERR_NOT_FOUND, "store: no such record: %s", name);
  pthread_mutex_unlock(&store->lock);
  return entry ? 0 : ERR_NOT_FOUND;
}

static int memory_list_records(struct store *base, const char *prefix, struct store_names *names,
                               struct err *err) {
  struct memory_store *store = store_locked(base);
  (void)err;
  for (int i = 0; i < store->records.count; i++) {
    const char *name = store->records.items[i].name;
    if (strncmp(name, prefix, strlen(prefix)))
      continue;
    array_reserve((void **)&names->items, &names->capacity, names->count, sizeof *names->items);
    names->items[names->count++] = mem_strdup(name);
  }
  pthread_mutex_unlock(&store->lock);
  return 0;
}

const struct store_def store_memory = {
    .schemes = "memory",
    .open = memory_open,
    .close = memory_close,
    .put_blocks = memory_put_blocks,
    .has_blocks = memory_has_blocks,
    .get_blocks = memory_get_blocks,
    .delete_blocks = memory_delete_blocks,
    .list_blocks = memory_list_blocks,
    .write_record = memory_write_record,
    .get_record = memory_get_record,
    .list_records = memory_list_records,
};

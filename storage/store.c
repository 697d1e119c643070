/* The store: the table of backends, and what is the same for all of them: names, hashes. */
#include "storage/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sha256.h"

enum { RECORD_NAME_MAX = 512 };

#define STORE(name) extern const struct store_def store_##name;
#include "storage/store.def"
#undef STORE

static const struct store_def *const stores[] = {
#define STORE(name) &store_##name,
#include "storage/store.def"
#undef STORE
};

static int unknown_scheme(const char *url, struct err *err);
static bool record_name_is_valid(const char *name);
static bool block_key_is_valid(const char *key);

int store_open(const char *url, struct store **out, struct err *err) {
  *out = NULL;
  for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
    size_t length = strlen(stores[i]->schemes);
    if (strncmp(url, stores[i]->schemes, length) == 0 && strncmp(url + length, "://", 3) == 0)
      return stores[i]->open(url, out, err);
  }
  return unknown_scheme(url, err);
}

void store_close(struct store *store) {
  if (store)
    store->def->close(store);
}

int store_put(struct store *store, const void *data, size_t size, char sha256[65], struct err *err) {
  struct store_block block = {.parts = {{(void *)data, size}}, .n_parts = 1};
  const char *key = block.sha256;
  sha256_hex(data, size, block.sha256);
  memcpy(sha256, block.sha256, sizeof block.sha256);
  if (store->def->has_blocks(store, &key, 1, &block.was_there, err))
    return err->code;
  return block.was_there ? 0 : store->def->put_blocks(store, &block, 1, err);
}

int store_get(struct store *store, const char *sha256, void **data, size_t *size, struct err *err) {
  char found[SHA256_HEX_SIZE];
  *data = NULL;
  *size = 0;
  if (!block_key_is_valid(sha256))
    return err_set(err, ERR_INVALID, "store: '%.80s' is not a block's key (64 lower-case hex digits)",
                   sha256);
  if (store->def->get_blocks(store, &sha256, 1, data, size, err))
    return err->code;
  if (!*data)
    return err_set(err, ERR_NOT_FOUND, "store: no such block: %s", sha256);
  sha256_hex(*data, *size, found);
  if (strcmp(found, sha256) == 0)
    return 0;
  err_set(err, ERR_CORRUPT, "store: block %s is corrupt: its %zu bytes hash to %s", sha256, *size, found);
  free(*data);
  *data = NULL;
  *size = 0;
  return ERR_CORRUPT;
}

int store_put_record(struct store *store, const char *name, const void *data, size_t size,
                     const struct store_guard *guards, int n_guards, struct err *err) {
  if (!record_name_is_valid(name))
    return err_set(err, ERR_INVALID, "store: bad record name '%.80s'", name);
  return store->def->write_record(store, name, data, size, guards, n_guards, err);
}

int store_get_record(struct store *store, const char *name, void **data, size_t *size, struct err *err) {
  *data = NULL;
  *size = 0;
  if (!record_name_is_valid(name))
    return err_set(err, ERR_INVALID, "store: bad record name '%.80s'", name);
  return store->def->get_record(store, name, data, size, err);
}

static int unknown_scheme(const char *url, struct err *err) {
  char known[256] = "";
  for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
    size_t length = strlen(known);
    snprintf(known + length, sizeof known - length, "%s%s://", i ? ", " : "", stores[i]->schemes);
  }
  return err_set(err, ERR_INVALID, "store: '%.200s': unknown scheme (known: %s)", url, known);
}

/* Components of [a-z0-9._-] between single slashes; none begins with a dot. */
static bool record_name_is_valid(const char *name) {
  size_t length = strlen(name);
  if (length == 0 || length > RECORD_NAME_MAX || name[length - 1] == '/')
    return false;
  if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789/._-") != length)
    return false;
  if (name[0] == '/' || name[0] == '.' || strstr(name, "//") || strstr(name, "/.") || strstr(name, ".."))
    return false;
  return true;
}

static bool block_key_is_valid(const char *key) {
  return strlen(key) == 64 && strspn(key, "0123456789abcdef") == 64;
}

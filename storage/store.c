/* The store: the table of backends, and what is the same for all of them: names, hashes. */
#include "storage/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/sha256.h"

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
static bool has_scheme(const struct store_def *def, const char *url);
static void find_keys(struct store_block *blocks, int n);
static int find_missing(struct store *store, struct store_block *blocks, int n, struct err *err);
static int verify_blocks(const struct store_read *reads, int n, struct err *err);
static int keys_check(const char *const *keys, int n, struct err *err);
static int record_check(const struct store_record *record, struct err *err);
static int name_check(const char *name, struct err *err);
static bool letters_are_valid(const char *text);
static bool record_name_is_valid(const char *name);
static bool block_key_is_valid(const char *key);
static int compare_names(const void *a, const void *b);

static bool is_plaintext_allowed;

void store_allow_plaintext(void) {
  is_plaintext_allowed = true;
}

bool store_may_send_plaintext(void) {
  return is_plaintext_allowed;
}

/* NULL: its scheme is unknown. */
static const struct store_def *def_find(const char *url) {
  for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
    if (has_scheme(stores[i], url))
      return stores[i];
  return NULL;
}

int store_open(const char *url, struct store **out, struct err *err) {
  const struct store_def *def = def_find(url);
  *out = NULL;
  return def ? def->open(url, out, err) : unknown_scheme(url, err);
}

int store_url_check(const char *url, struct err *err) {
  const struct store_def *def = def_find(url);
  if (!def)
    return unknown_scheme(url, err);
  return def->check_url ? def->check_url(url, err) : 0;
}

void store_close(struct store *store) {
  if (store)
    store->def->close(store);
}

/* The user's part of a URL: the bytes from "://" to the last '@', as the redis stores take it, so that an
   unescaped '/' or '?' in a password shows nothing. NULL: there is none. */
static const char *url_user(const char *url, size_t *length) {
  const char *begin = strstr(url, "://"), *at = NULL;
  if (!begin)
    return NULL;
  begin += 3;
  if (*begin != '/')
    at = strrchr(begin, '@');
  *length = at ? (size_t)(at - begin) : 0;
  return at ? begin : NULL;
}

bool store_url_has_password(const char *url) {
  size_t length;
  const char *user = url_user(url, &length);
  return user && memchr(user, ':', length) != NULL;
}

char *store_url_redacted(const char *url) {
  size_t length;
  const char *user = url_user(url, &length), *colon = user ? memchr(user, ':', length) : NULL;
  if (!colon)
    return mem_strdup(url);
  return mem_printf("%.*s:***%s", (int)(colon - url), url, user + length);
}

int store_batch_max(const struct store *store) {
  return store->def->put_blocks_max ? store->def->put_blocks_max : STORE_BATCH_MAX;
}

int store_put_blocks(struct store *store, struct store_block *blocks, int n, uint64_t *written_bytes,
                     struct err *err) {
  int most = store_batch_max(store);
  for (int at = 0; at < n; at += most) {
    int count = n - at < most ? n - at : most;
    find_keys(blocks + at, count);
    if (find_missing(store, blocks + at, count, err) ||
        store->def->put_blocks(store, blocks + at, count, err))
      return err->code;
    for (int i = at; i < at + count && written_bytes; i++)
      for (int p = 0; p < blocks[i].n_parts && !blocks[i].was_there; p++)
        *written_bytes += blocks[i].parts[p].iov_len;
  }
  return 0;
}

int store_get_blocks(struct store *store, struct store_read *reads, int n, struct err *err) {
  int rc = 0;
  CHECK(n <= STORE_BATCH_MAX);
  for (int i = 0; i < n; i++) {
    reads[i].data = NULL;
    reads[i].size = 0;
  }
  for (int i = 0; i < n; i++)
    if (keys_check(&reads[i].key, 1, err))
      return err->code;
  if (store->def->get_blocks(store, reads, n, err))
    return err->code;
  rc = verify_blocks(reads, n, err);
  for (int i = 0; i < n && rc; i++) {
    free(reads[i].data);
    reads[i].data = NULL;
  }
  return rc;
}

int store_has_blocks(struct store *store, const char *const *keys, int n, bool *has, struct err *err) {
  int rc = keys_check(keys, n, err);
  for (int at = 0; at < n && !rc; at += STORE_BATCH_MAX)
    rc = store->def->has_blocks(store, keys + at, n - at < STORE_BATCH_MAX ? n - at : STORE_BATCH_MAX,
                                has + at, err);
  return rc;
}

int store_delete_blocks(struct store *store, const char *const *keys, int n, struct err *err) {
  int rc = keys_check(keys, n, err);
  for (int at = 0; at < n && !rc; at += STORE_BATCH_MAX)
    rc =
        store->def->delete_blocks(store, keys + at, n - at < STORE_BATCH_MAX ? n - at : STORE_BATCH_MAX, err);
  return rc;
}

int store_list_blocks(struct store *store, int (*each)(void *user, const char *key, uint64_t size_bytes),
                      void *user, struct err *err) {
  return store->def->list_blocks(store, each, user, err);
}

int store_put(struct store *store, const void *data, size_t size, char sha256[STORE_KEY_SIZE],
              struct err *err) {
  struct store_block block = {.parts = {{(void *)data, size}}, .n_parts = 1};
  int rc = store_put_blocks(store, &block, 1, NULL, err);
  memcpy(sha256, block.sha256, sizeof block.sha256);
  return rc;
}

int store_get(struct store *store, const char *sha256, void **data, size_t *size, struct err *err) {
  struct store_read read = {.key = sha256};
  int rc = store_get_blocks(store, &read, 1, err);
  *data = read.data;
  *size = read.size;
  return rc;
}

int store_put_record(struct store *store, const struct store_record *record, struct err *err) {
  struct store_record written = *record;
  if (record_check(record, err))
    return err->code;
  written.data = record->data ? record->data : "";
  return store->def->write_record(store, &written, err);
}

int store_delete_record(struct store *store, const char *name, const struct store_record *guard,
                        struct err *err) {
  struct store_record deleted = {.name = name, .guard = guard};
  if (record_check(&deleted, err))
    return err->code;
  return store->def->write_record(store, &deleted, err);
}

int store_get_record(struct store *store, const char *name, void **data, size_t *size, struct err *err) {
  *data = NULL;
  *size = 0;
  if (name_check(name, err))
    return err->code;
  return store->def->get_record(store, name, data, size, err);
}

int store_list_records(struct store *store, const char *prefix, struct store_names *names, struct err *err) {
  *names = (struct store_names){0};
  if (!letters_are_valid(prefix))
    return err_set(err, ERR_INVALID, "store: bad prefix of record names '%.80s'", prefix);
  if (store->def->list_records(store, prefix, names, err)) {
    store_names_fini(names);
    return err->code;
  }
  if (names->count)
    qsort(names->items, (size_t)names->count, sizeof *names->items, compare_names);
  return 0;
}

void store_names_fini(struct store_names *names) {
  for (int i = 0; i < names->count; i++)
    free(names->items[i]);
  free(names->items);
  *names = (struct store_names){0};
}

int store_sweep(struct store *store, int age_s, struct err *err) {
  return store->def->sweep ? store->def->sweep(store, age_s, err) : 0;
}

/* schemes are separated by spaces. */
static bool has_scheme(const struct store_def *def, const char *url) {
  const char *end = strstr(url, "://");
  size_t length = end ? (size_t)(end - url) : 0, word;
  for (const char *at = def->schemes; length && *at; at += word + (at[word] == ' ')) {
    word = strcspn(at, " ");
    if (word == length && strncmp(at, url, length) == 0)
      return true;
  }
  return false;
}

static int unknown_scheme(const char *url, struct err *err) {
  char known[256] = "", *redacted = store_url_redacted(url);
  for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
    for (const char *at = stores[i]->schemes, *next; *at; at = next) {
      size_t word = strcspn(at, " "), length = strlen(known);
      next = at + word + (at[word] == ' ');
      snprintf(known + length, sizeof known - length, "%s%.*s://", length ? ", " : "", (int)word, at);
    }
  err_set(err, ERR_INVALID, "store: '%.200s': unknown scheme (known: %s)", redacted, known);
  free(redacted);
  return err->code;
}

static void find_keys(struct store_block *blocks, int n) {
  struct sha256_message messages[STORE_BATCH_MAX] = {{0}};
  for (int i = 0; i < n; i++)
    messages[i] = (struct sha256_message){blocks[i].parts, blocks[i].n_parts, blocks[i].sha256};
  sha256_many(messages, n);
}

static int find_missing(struct store *store, struct store_block *blocks, int n, struct err *err) {
  const char *keys[STORE_BATCH_MAX] = {NULL};
  bool has[STORE_BATCH_MAX];
  for (int i = 0; i < n; i++)
    keys[i] = blocks[i].sha256;
  if (store->def->has_blocks(store, keys, n, has, err))
    return err->code;
  for (int i = 0; i < n; i++)
    blocks[i].was_there = has[i];
  return 0;
}

/* All are there and have their hashes; else the error is about the first that is not. */
static int verify_blocks(const struct store_read *reads, int n, struct err *err) {
  struct sha256_message messages[STORE_BATCH_MAX] = {{0}};
  struct iovec parts[STORE_BATCH_MAX];
  char found[STORE_BATCH_MAX][SHA256_HEX_SIZE] = {{0}};
  int n_there = 0;
  for (; n_there < n && reads[n_there].data; n_there++) {
    parts[n_there] = (struct iovec){reads[n_there].data, reads[n_there].size};
    messages[n_there] = (struct sha256_message){&parts[n_there], 1, found[n_there]};
  }
  sha256_many(messages, n_there);
  for (int i = 0; i < n_there; i++)
    if (strcmp(found[i], reads[i].key) != 0)
      return err_set(err, ERR_CORRUPT, "store: block %s is corrupt: its %zu bytes hash to %s", reads[i].key,
                     reads[i].size, found[i]);
  return n_there == n ? 0 : err_set(err, ERR_NOT_FOUND, "store: no such block: %s", reads[n_there].key);
}

static int keys_check(const char *const *keys, int n, struct err *err) {
  for (int i = 0; i < n; i++)
    if (!block_key_is_valid(keys[i]))
      return err_set(err, ERR_INVALID, "store: '%.80s' is not a block's key (64 lower-case hex digits)",
                     keys[i]);
  return 0;
}

/* The names of the record and its guards. */
static int record_check(const struct store_record *record, struct err *err) {
  int n_guards = 0;
  if (name_check(record->name, err))
    return err->code;
  for (const struct store_record *guard = record->guard; guard; guard = guard->guard, n_guards++)
    if (name_check(guard->name, err))
      return err->code;
  CHECK(n_guards <= STORE_GUARDS_MAX);
  return 0;
}

static int name_check(const char *name, struct err *err) {
  if (record_name_is_valid(name))
    return 0;
  return err_set(err, ERR_INVALID, "store: bad record name '%.80s'", name);
}

static bool letters_are_valid(const char *text) {
  return strlen(text) <= RECORD_NAME_MAX &&
         strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789/._-") == strlen(text);
}

/* Components of [a-z0-9._-] between single slashes; none begins with a dot. */
static bool record_name_is_valid(const char *name) {
  size_t length = strlen(name);
  if (length == 0 || !letters_are_valid(name) || name[length - 1] == '/')
    return false;
  return name[0] != '/' && name[0] != '.' && !strstr(name, "//") && !strstr(name, "/.");
}

static bool block_key_is_valid(const char *key) {
  return strlen(key) == 64 && strspn(key, "0123456789abcdef") == 64;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

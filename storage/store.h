/* The store: where checkpoints live. Content-addressed blocks, and named records that are replaced
   atomically. A store is a row in store.def: a URL scheme and a file. */
#ifndef WEIR_STORAGE_STORE_H
#define WEIR_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

struct store;

/* One backend. Calls may block; any thread, several at a time. */
struct store_def {
  const char *scheme; /* "file" */
  int (*open)(const char *url, struct store **out, struct err *err);
  void (*close)(struct store *store);
  /* Durable when it returns. Writing a key again with the same content is not an error. */
  int (*put_block)(struct store *store, const char *sha256, const void *data, size_t size, struct err *err);
  bool (*has_block)(struct store *store, const char *sha256);
  int (*get_block)(struct store *store, const char *sha256, void **data, size_t *size, struct err *err);
  /* Atomically replaces record `name` ([a-z0-9/._-], no ".."). */
  int (*put_record)(struct store *store, const char *name, const void *data, size_t size, struct err *err);
  int (*get_record)(struct store *store, const char *name, void **data, size_t *size, struct err *err);
};

/* Every backend's struct begins with this. */
struct store {
  const struct store_def *def;
};

/* URL "file:///absolute/dir" (made if missing). Errors: INVALID for an unknown scheme (the known ones named).
 */
int store_open(const char *url, struct store **out, struct err *err);
void store_close(struct store *store); /* NULL is ignored */

/* Content-addressed: fills sha256 (65 bytes) and writes only what is not there yet. */
int store_put(struct store *store, const void *data, size_t size, char sha256[65], struct err *err);
/* Reads and verifies the hash. Errors: NOT_FOUND, CORRUPT (named by key). *data is freed by the caller. */
int store_get(struct store *store, const char *sha256, void **data, size_t *size, struct err *err);
int store_put_record(struct store *store, const char *name, const void *data, size_t size, struct err *err);
int store_get_record(struct store *store, const char *name, void **data, size_t *size, struct err *err);

#endif

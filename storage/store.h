/* The store: where checkpoints and the coordinator's state live. It holds content-addressed blocks, and named
   records. A record is replaced atomically, on condition that other records are as the writer believes. A
   store is a row in store.def: its URL schemes and its file.

   Errors of every call: UNAVAILABLE and TIMEOUT (gone, full, read-only or slow: later calls may succeed, the
   store connects again by itself), IO. */
#ifndef WEIR_STORAGE_STORE_H
#define WEIR_STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/err.h"

struct store;

enum { STORE_KEY_SIZE = 65, STORE_PARTS_MAX = 18, STORE_BATCH_MAX = 64, STORE_GUARDS_MAX = 4 };

/* A block to write: its content in parts, one after the other. */
struct store_block {
  struct iovec parts[STORE_PARTS_MAX];
  int n_parts;
  char sha256[STORE_KEY_SIZE]; /* its key, filled by store_put_blocks */
  bool was_there;              /* likewise: nothing was written */
};

/* A block to read. */
struct store_read {
  const char *key;
  void *data; /* set: malloc'd */
  size_t size;
};

/* A record to write, or the condition of a write. A record is written only if the store holds its guard with
   exactly these bytes; a guard without data: only if there is no such record. A guard may have a guard, which
   has to hold, too; STORE_GUARDS_MAX in all. NULL: no condition. */
struct store_record {
  const char *name;
  const void *data;
  size_t size;
  const struct store_record *guard;
};

/* Names of records, ascending. */
struct store_names {
  char **items;
  int count, capacity;
};

/* One backend. Calls may block; any thread, several at a time. n is at most STORE_BATCH_MAX. */
struct store_def {
  const char *schemes;                                /* "file", or several separated by a space */
  int (*check_url)(const char *url, struct err *err); /* store_url_check; NULL: only opening tells */
  int (*open)(const char *url, struct store **out, struct err *err);
  void (*close)(struct store *store);
  /* How many blocks put_blocks is given at a time: few where one thread's are hashed while another's are on
     their way, many where each call costs. 0: STORE_BATCH_MAX. */
  int put_blocks_max;
  /* Writes blocks whose keys are filled and that are not was_there (these too, where it is cheap to see that
     they are damaged or have gone). All are durable when it returns, as far as the store's own settings go;
     after an error any of them may be. */
  int (*put_blocks)(struct store *store, const struct store_block *blocks, int n, struct err *err);
  int (*has_blocks)(struct store *store, const char *const *keys, int n, bool *has, struct err *err);
  /* Data is NULL to begin with. It stays so where there is no such block, which is no error, and everywhere
     after an error. */
  int (*get_blocks)(struct store *store, struct store_read *reads, int n, struct err *err);
  int (*delete_blocks)(struct store *store, const char *const *keys, int n, struct err *err);
  /* Every block once, in any order; those that come or go meanwhile may be missed. Ends early when `each`
     returns non-zero, with that value. */
  int (*list_blocks)(struct store *store, int (*each)(void *user, const char *key, uint64_t size_bytes),
                     void *user, struct err *err);
  /* All guards hold and the record is replaced (data NULL: deleted, also if it is not there), or STALE and
     nothing is changed; also after a crash or a power cut. */
  int (*write_record)(struct store *store, const struct store_record *record, struct err *err);
  int (*get_record)(struct store *store, const char *name, void **data, size_t *size, struct err *err);
  /* Appends the names that begin with prefix. */
  int (*list_records)(struct store *store, const char *prefix, struct store_names *names, struct err *err);
  /* What is left from writes that were cut short, and older than this; may be NULL. */
  int (*sweep)(struct store *store, int age_s, struct err *err);
};

/* Every backend's struct begins with this. */
struct store {
  const struct store_def *def;
};

/* URLs:
     file:///absolute/directory                            made if missing; may be shared by processes
     redis://[USER@]HOST[:PORT][/DB]                       rediss:// with TLS
     redis+unix:///path/of/socket[?db=N]
     redis+sentinel://[USER@]HOST[:PORT],.../MASTER[/DB]   rediss+sentinel:// with TLS
     redis+cluster://[USER@]HOST[:PORT],...                rediss+cluster:// with TLS
     memory://                                             this process's own, for tests
   Options after '?', separated by '&': prefix=TEXT of the keys (weir), replicas=N that must have a write
   before it counts (0), timeout_ms=N for an answer (5000), for TLS ca=FILE, cert=FILE, key=FILE and name=NAME
   that the server's certificate must have (its host); these files are read for each connection. Without TLS a
   Redis is asked on this machine alone, unless store_allow_plaintext. A password is taken from the URL
   (USER:PASSWORD@, :PASSWORD@), else from the file that WEIR_STORE_PASSWORD_FILE names, else from
   WEIR_STORE_PASSWORD. Errors: INVALID for a bad URL (an unknown scheme: the known ones named), a refused
   password or a wrong kind of server; UNAVAILABLE when nobody answers. No error and no log shows a password.
 */
int store_open(const char *url, struct store **out, struct err *err);
/* What can be said of a URL before the store is opened. Errors: INVALID, as of store_open. */
int store_url_check(const char *url, struct err *err);
/* From here on plaintext may go beyond this machine: --insecure. Before the process has threads. */
void store_allow_plaintext(void);
bool store_may_send_plaintext(void);
void store_close(struct store *store); /* NULL is ignored */
bool store_url_has_password(const char *url);
char *store_url_redacted(const char *url); /* without the password; freed by the caller */

/* Blocks: n is any number; they go in batches. */

/* How many blocks are put at a time: more in a call are no faster, and several threads share fewer well. At
   most STORE_BATCH_MAX. */
int store_batch_max(const struct store *store);

/* Fills the keys and writes what is not there yet. *written_bytes (may be NULL) grows by what was written. */
int store_put_blocks(struct store *store, struct store_block *blocks, int n, uint64_t *written_bytes,
                     struct err *err);
/* Reads at most STORE_BATCH_MAX blocks and verifies them. Their data is freed by the caller. Errors:
   NOT_FOUND, CORRUPT (both name the key); all data is NULL then. */
int store_get_blocks(struct store *store, struct store_read *reads, int n, struct err *err);
int store_has_blocks(struct store *store, const char *const *keys, int n, bool *has, struct err *err);
int store_delete_blocks(struct store *store, const char *const *keys, int n, struct err *err);
int store_list_blocks(struct store *store, int (*each)(void *user, const char *key, uint64_t size_bytes),
                      void *user, struct err *err);

/* One block, as above. */
int store_put(struct store *store, const void *data, size_t size, char sha256[STORE_KEY_SIZE],
              struct err *err);
int store_get(struct store *store, const char *sha256, void **data, size_t *size, struct err *err);

/* Records: components of [a-z0-9._-] between slashes, none beginning with a dot; where there is a record a
   there is none a/b. */

/* Replaces the record (data NULL: by an empty one) if its guards hold. Errors: STALE naming the guard that
   did not hold. */
int store_put_record(struct store *store, const struct store_record *record, struct err *err);
int store_delete_record(struct store *store, const char *name, const struct store_record *guard,
                        struct err *err);
/* Errors: NOT_FOUND. *data is freed by the caller. */
int store_get_record(struct store *store, const char *name, void **data, size_t *size, struct err *err);
/* Names that begin with prefix (any text of a name's letters), ascending. */
int store_list_records(struct store *store, const char *prefix, struct store_names *names, struct err *err);
void store_names_fini(struct store_names *names);

/* Removes what is left from writes that were cut short at least age_s ago. */
int store_sweep(struct store *store, int age_s, struct err *err);

#endif

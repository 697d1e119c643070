/* Lists of what a store on Redis holds, which may be longer than one reply. */
#ifndef WEIR_STORAGE_REDIS_REDIS_LIST_H
#define WEIR_STORAGE_REDIS_REDIS_LIST_H

#include "storage/redis/redis_session.h"
#include "storage/store.h"

struct redis_found {
  char key[STORE_KEY_SIZE];
  uint64_t size_bytes;
};

/* Every block once, by key; freed by the caller. Errors: as redis_session_run; IO for a server that lists
   without end. */
int redis_list_blocks(struct redis_session *session, struct redis_found **found, size_t *n, struct err *err);

/* Appends the names in the sorted set `index` that begin with prefix. Errors: likewise. */
int redis_list_names(struct redis_session *session, const char *index, const char *prefix,
                     struct store_names *names, struct err *err);

#endif

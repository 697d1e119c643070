/* The identity of a store. By it two processes with different URLs know whether they use the same store. */
#ifndef WEIR_STORAGE_IDENTITY_H
#define WEIR_STORAGE_IDENTITY_H

#include "storage/store.h"

enum { STORE_IDENTITY_SIZE = 33 }; /* 32 random hexadecimal digits and the zero */

/* Errors: NOT_FOUND: the store has none yet; CORRUPT; those of the store. */
int store_identity_read(struct store *store, char identity[STORE_IDENTITY_SIZE], struct err *err);

/* Reads it; where there is none, gives the store one: `identity` if it is not empty, else a new one. Writes
   only while the guard holds. Errors: STALE; CORRUPT; those of the store. */
int store_identity_settle(struct store *store, const struct store_record *guard,
                          char identity[STORE_IDENTITY_SIZE], struct err *err);

#endif

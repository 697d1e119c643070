/* Which store this is. */
#include "storage/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char identity_name[] = "store/identity";

int store_identity_read(struct store *store, char identity[STORE_IDENTITY_SIZE], struct err *err) {
  void *data = NULL;
  size_t size;
  int rc = store_get_record(store, identity_name, &data, &size, err);
  if (rc)
    return rc;
  if (size == STORE_IDENTITY_SIZE - 1) {
    memcpy(identity, data, size);
    identity[size] = 0;
  }
  if (size != STORE_IDENTITY_SIZE - 1 || strspn(identity, "0123456789abcdef") != size)
    rc = err_set(err, ERR_CORRUPT, "store: record %s holds no identity", identity_name);
  free(data);
  return rc;
}

static int identity_make(char identity[STORE_IDENTITY_SIZE], struct err *err) {
  unsigned char bytes[(STORE_IDENTITY_SIZE - 1) / 2];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return err_errno(err, errno, "random numbers, for the store's identity");
  for (size_t i = 0; i < sizeof bytes; i++)
    snprintf(identity + 2 * i, 3, "%02x", bytes[i]);
  return 0;
}

int store_identity_settle(struct store *store, const struct store_record *guard,
                          char identity[STORE_IDENTITY_SIZE], struct err *err) {
  struct store_record none_yet = {.name = identity_name, .guard = guard};
  char found[STORE_IDENTITY_SIZE];
  int rc = store_identity_read(store, found, err);
  if (!rc)
    memcpy(identity, found, sizeof found);
  if (rc != ERR_NOT_FOUND)
    return rc;
  *err = ERR_NONE;
  if (!*identity && identity_make(identity, err))
    return err->code;
  return store_put_record(
      store, &(struct store_record){identity_name, identity, STORE_IDENTITY_SIZE - 1, &none_yet}, err);
}

#include "tests/support/storage/store_double.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "tests/support/common/patience.h"

struct double_item *double_find(struct store_double *d, const char *name) {
  for (int i = 0; i < d->n_items; i++)
    if (strcmp(d->items[i].name, name) == 0)
      return &d->items[i];
  return NULL;
}

static int double_fails_locked(struct store_double *d, struct err *err) {
  if (d->n_failures == 0)
    return 0;
  d->n_failures--;
  return err_set(err, d->fail_code, "store: nobody answers");
}

static void *double_add_locked(struct store_double *d, const char *name, size_t size) {
  struct double_item *item = double_find(d, name);
  if (!item) {
    assert_true(d->n_items < DOUBLE_ITEMS_MAX);
    item = &d->items[d->n_items++];
    strncpy(item->name, name, sizeof item->name - 1);
  }
  free(item->data);
  item->data = mem_new(size);
  item->size = size;
  return item->data;
}

static int double_put_blocks(struct store *store, const struct store_block *blocks, int n, struct err *err) {
  struct store_double *d = (struct store_double *)store;
  int code;
  pthread_mutex_lock(&d->lock);
  d->n_puts++;
  d->n_hanging++;
  pthread_cond_broadcast(&d->changed);
  while (d->is_hanging)
    pthread_cond_wait(&d->changed, &d->lock);
  d->n_hanging--;
  code = double_fails_locked(d, err);
  for (int i = 0; i < n && !code; i++) {
    size_t size = 0;
    char *at;
    for (int p = 0; p < blocks[i].n_parts; p++)
      size += blocks[i].parts[p].iov_len;
    if (blocks[i].was_there)
      continue;
    at = double_add_locked(d, blocks[i].sha256, size);
    for (int p = 0; p < blocks[i].n_parts; p++) {
      memcpy(at, blocks[i].parts[p].iov_base, blocks[i].parts[p].iov_len);
      at += blocks[i].parts[p].iov_len;
    }
  }
  pthread_mutex_unlock(&d->lock);
  return code;
}

static int double_has_blocks(struct store *store, const char *const *keys, int n, bool *has,
                             struct err *err) {
  struct store_double *d = (struct store_double *)store;
  (void)err;
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < n; i++)
    has[i] = double_find(d, keys[i]) != NULL;
  pthread_mutex_unlock(&d->lock);
  return 0;
}

/* False, and nothing, if there is no such item. */
static bool double_copy_locked(struct store_double *d, const char *name, void **data, size_t *size) {
  struct double_item *item = double_find(d, name);
  *data = NULL;
  *size = 0;
  if (!item)
    return false;
  *data = mem_new(item->size);
  *size = item->size;
  memcpy(*data, item->data, item->size);
  return true;
}

static int double_get_blocks(struct store *store, struct store_read *reads, int n, struct err *err) {
  struct store_double *d = (struct store_double *)store;
  int code;
  pthread_mutex_lock(&d->lock);
  code = double_fails_locked(d, err);
  for (int i = 0; i < n && !code; i++)
    double_copy_locked(d, reads[i].key, &reads[i].data, &reads[i].size);
  pthread_mutex_unlock(&d->lock);
  return code;
}

static int double_write_record(struct store *store, const struct store_record *record, struct err *err) {
  struct store_double *d = (struct store_double *)store;
  int code;
  pthread_mutex_lock(&d->lock);
  code = double_fails_locked(d, err);
  if (!code)
    memcpy(double_add_locked(d, record->name, record->size), record->data, record->size);
  pthread_mutex_unlock(&d->lock);
  return code;
}

static int double_get_record(struct store *store, const char *name, void **data, size_t *size,
                             struct err *err) {
  struct store_double *d = (struct store_double *)store;
  int code;
  pthread_mutex_lock(&d->lock);
  code = double_fails_locked(d, err);
  if (!code && !double_copy_locked(d, name, data, size))
    code = err_set(err, ERR_NOT_FOUND, "store: no such record: %s", name);
  pthread_mutex_unlock(&d->lock);
  return code;
}

static const struct store_def store_double_def = {.put_blocks = double_put_blocks,
                                                  .has_blocks = double_has_blocks,
                                                  .get_blocks = double_get_blocks,
                                                  .write_record = double_write_record,
                                                  .get_record = double_get_record};

void double_init(struct store_double *d) {
  *d = (struct store_double){.base = {&store_double_def}};
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->changed, NULL);
}

void double_fini(struct store_double *d) {
  for (int i = 0; i < d->n_items; i++)
    free(d->items[i].data);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
}

void double_hang(struct store_double *d, bool hangs) {
  pthread_mutex_lock(&d->lock);
  d->is_hanging = hangs;
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
}

void double_fail(struct store_double *d, int n_failures, enum err_code code) {
  pthread_mutex_lock(&d->lock);
  d->n_failures = n_failures;
  d->fail_code = code;
  pthread_mutex_unlock(&d->lock);
}

void double_wait_hanging(struct store_double *d) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
  pthread_mutex_lock(&d->lock);
  while (d->n_hanging == 0 && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&d->changed, &d->lock, &until);
  pthread_mutex_unlock(&d->lock);
  assert_int_not_equal(rc, ETIMEDOUT);
}

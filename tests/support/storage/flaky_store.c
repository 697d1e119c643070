#include "tests/support/storage/flaky_store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/memory.h"

static bool flaky_fails(struct store *base, struct err *err) {
  struct flaky_store *flaky = (struct flaky_store *)base;
  if (__atomic_load_n(&flaky->is_away, __ATOMIC_ACQUIRE))
    err_set(err, ERR_UNAVAILABLE, "store: nobody answers");
  return __atomic_load_n(&flaky->is_away, __ATOMIC_ACQUIRE);
}

#define FLAKY(call)                                                                                          \
  struct store *inner = ((struct flaky_store *)store)->inner;                                                \
  return flaky_fails(store, err) ? ERR_UNAVAILABLE : inner->def->call

static int flaky_put_blocks(struct store *store, const struct store_block *blocks, int n, struct err *err) {
  FLAKY(put_blocks)(inner, blocks, n, err);
}

static int flaky_has_blocks(struct store *store, const char *const *keys, int n, bool *has, struct err *err) {
  FLAKY(has_blocks)(inner, keys, n, has, err);
}

static int flaky_get_blocks(struct store *store, struct store_read *reads, int n, struct err *err) {
  struct flaky_store *flaky = (struct flaky_store *)store;
  if (__atomic_load_n(&flaky->holds_reads, __ATOMIC_ACQUIRE))
    __atomic_fetch_add(&flaky->n_held, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(&flaky->holds_reads, __ATOMIC_ACQUIRE))
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  FLAKY(get_blocks)(inner, reads, n, err);
}

static int flaky_delete_blocks(struct store *store, const char *const *keys, int n, struct err *err) {
  FLAKY(delete_blocks)(inner, keys, n, err);
}

static int flaky_list_blocks(struct store *store,
                             int (*each)(void *user, const char *key, uint64_t size_bytes), void *user,
                             struct err *err) {
  FLAKY(list_blocks)(inner, each, user, err);
}

static bool is_refused(struct flaky_store *flaky, const struct store_record *record, struct err *err) {
  const char *refused = __atomic_load_n(&flaky->refused, __ATOMIC_ACQUIRE);
  bool is_so = refused && strcmp(record->name, refused) == 0;
  if (is_so)
    err_set(err, ERR_UNAVAILABLE, "store: %s is not written", refused);
  return is_so;
}

static bool ends_so(const struct store_record *record, const char *const *ending) {
  const char *tail = __atomic_load_n(ending, __ATOMIC_ACQUIRE);
  size_t length = strlen(record->name), tail_length = tail ? strlen(tail) : 0;
  return tail && length >= tail_length && strcmp(record->name + length - tail_length, tail) == 0;
}

static int flaky_write_record(struct store *store, const struct store_record *record, struct err *err) {
  struct flaky_store *flaky = (struct flaky_store *)store;
  int rc;
  if (ends_so(record, &flaky->last))
    flaky_set_away(store, true);
  if (flaky_fails(store, err) || is_refused(flaky, record, err)) {
    __atomic_fetch_add(&flaky->n_refused, 1, __ATOMIC_ACQ_REL);
    return ERR_UNAVAILABLE;
  }
  rc = flaky->inner->def->write_record(flaky->inner, record, err);
  if (rc || (!flaky->loses_answer && !ends_so(record, &flaky->lost)))
    return rc;
  flaky->loses_answer = false;
  return err_set(err, ERR_UNAVAILABLE, "store: the connection broke: it may or may not be written");
}

static bool is_held(struct flaky_store *flaky, const char *name) {
  const char *held = __atomic_load_n(&flaky->held, __ATOMIC_ACQUIRE);
  return held && strcmp(held, name) == 0;
}

static int flaky_get_record(struct store *store, const char *name, void **data, size_t *size,
                            struct err *err) {
  struct flaky_store *flaky = (struct flaky_store *)store;
  if (is_held(flaky, name))
    __atomic_fetch_add(&flaky->n_held, 1, __ATOMIC_ACQ_REL);
  while (is_held(flaky, name))
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  FLAKY(get_record)(inner, name, data, size, err);
}

static int flaky_list_records(struct store *store, const char *prefix, struct store_names *names,
                              struct err *err) {
  FLAKY(list_records)(inner, prefix, names, err);
}

static void flaky_close(struct store *store) {
  free(store);
}

void flaky_set_away(struct store *store, bool is_away) {
  __atomic_store_n(&((struct flaky_store *)store)->is_away, is_away, __ATOMIC_RELEASE);
}

void flaky_refuse_record(struct store *store, const char *name) {
  __atomic_store_n(&((struct flaky_store *)store)->refused, name, __ATOMIC_RELEASE);
}

void flaky_lose_answers(struct store *store, const char *ending) {
  __atomic_store_n(&((struct flaky_store *)store)->lost, ending, __ATOMIC_RELEASE);
}

void flaky_leave_at(struct store *store, const char *ending) {
  __atomic_store_n(&((struct flaky_store *)store)->last, ending, __ATOMIC_RELEASE);
}

void flaky_hold_reads(struct store *store, bool holds) {
  __atomic_store_n(&((struct flaky_store *)store)->holds_reads, holds, __ATOMIC_RELEASE);
}

void flaky_hold_record(struct store *store, const char *name) {
  __atomic_store_n(&((struct flaky_store *)store)->held, name, __ATOMIC_RELEASE);
}

int flaky_count_held(struct store *store) {
  return __atomic_load_n(&((struct flaky_store *)store)->n_held, __ATOMIC_ACQUIRE);
}

int flaky_count_refused(struct store *store) {
  return __atomic_load_n(&((struct flaky_store *)store)->n_refused, __ATOMIC_ACQUIRE);
}

struct store *flaky_store_new(struct store *inner) {
  static const struct store_def def = {
      .schemes = "flaky",
      .close = flaky_close,
      .put_blocks = flaky_put_blocks,
      .has_blocks = flaky_has_blocks,
      .get_blocks = flaky_get_blocks,
      .delete_blocks = flaky_delete_blocks,
      .list_blocks = flaky_list_blocks,
      .write_record = flaky_write_record,
      .get_record = flaky_get_record,
      .list_records = flaky_list_records,
  };
  struct flaky_store *flaky = mem_new(sizeof *flaky);
  flaky->base.def = &def;
  flaky->inner = inner;
  return &flaky->base;
}

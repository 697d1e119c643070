/* A store in memory that hangs and fails when a test says so. The test passes &d.base as the store; it
   takes blocks and records, and has no lists and no deletions. Any thread. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_STORE_DOUBLE_H
#define WEIR_TESTS_SUPPORT_STORAGE_STORE_DOUBLE_H

#include <pthread.h>

#include "storage/store.h"

enum { DOUBLE_ITEMS_MAX = 256 };

struct double_item {
  char name[128]; /* key of a block, or name of a record */
  void *data;
  size_t size;
};

struct store_double {
  struct store base;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct double_item items[DOUBLE_ITEMS_MAX];
  int n_items;
  bool is_hanging; /* double_hang: calls that write blocks wait until it is false */
  int n_hanging;   /* calls that are writing blocks now, or wait */
  int n_puts;      /* calls that began to write blocks, so far */
  int n_failures;  /* so many of the next calls fail, with: */
  enum err_code fail_code;
};

/* The item, or NULL. The test holds the lock, or nothing uses the store. */
struct double_item *double_find(struct store_double *d, const char *name);

void double_init(struct store_double *d);

void double_fini(struct store_double *d);

/* While it hangs, calls that write blocks do not return. */
void double_hang(struct store_double *d, bool hangs);

/* The next n_failures calls that read or write blocks or records fail with the code. */
void double_fail(struct store_double *d, int n_failures, enum err_code code);

/* Waits until a call that writes blocks hangs; fails the test if none comes in time. */
void double_wait_hanging(struct store_double *d);

#endif

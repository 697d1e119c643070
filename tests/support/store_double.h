/* A store in memory that hangs, fails and forgets as a test says. */
#ifndef WEIR_TESTS_STORE_DOUBLE_H
#define WEIR_TESTS_STORE_DOUBLE_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "common/base/memory.h"
#include "storage/store.h"
#include "tests/support/patience.h"

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
  bool is_hanging; /* calls that write blocks wait until it is false */
  int n_hanging;   /* of them */
  int n_puts;      /* calls */
  int n_failures;  /* the next calls fail, with: */
  enum err_code fail_code;
};

struct double_item *double_find(struct store_double *d, const char *name);

void double_init(struct store_double *d);

void double_fini(struct store_double *d);

void double_hang(struct store_double *d, bool hangs);

void double_fail(struct store_double *d, int n_failures, enum err_code code);

/* Waits until a call that writes blocks hangs. */
void double_wait_hanging(struct store_double *d);

#endif

/* What the conformance suites of stores share. Each of their tests runs on memory:, on file: in a fresh
   directory, and on the store that WEIR_TEST_STORE names. Others may use that one at the same time: names and
   contents are the test's own, and what it wrote is deleted when it ends. */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_STORE_SUITE_H
#define WEIR_TESTS_SUPPORT_STORAGE_STORE_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "storage/store.h"

enum { SUITE_KEYS_MAX = 512 };

/* The store of the test that runs: its state. */
struct store_suite {
  const char *kind; /* "memory", "file" or "given" */
  char *url, folder[64];
  struct store *store;
  uint64_t salt;   /* makes names and contents this test's own */
  char prefix[48]; /* of its records' names */
  char keys_written[SUITE_KEYS_MAX][STORE_KEY_SIZE];
  int n_keys_written;
};

/* The name of a record of this test. The 16 latest of a thread stay valid. */
const char *suite_name(const struct store_suite *s, const char *rest);

/* The bytes of block i; freed by the caller. Threads may ask at the same time. */
char *suite_content(const struct store_suite *s, uint64_t i, size_t size);

/* The block is deleted when the test ends. suite_put and suite_put_content see to that themselves. */
void suite_delete_later(struct store_suite *s, const char *key);

/* Puts a block of these bytes, or of suite_content(s, i, size), and gives its key. */
void suite_put(struct store_suite *s, const void *data, size_t size, char key[STORE_KEY_SIZE]);
void suite_put_content(struct store_suite *s, uint64_t i, size_t size, char key[STORE_KEY_SIZE]);

/* Whether the store has the block; an error fails the test. */
bool suite_has(struct store_suite *s, const char *key);

/* A record or a guard of that text; NULL: a guard of absence. */
struct store_record text_record(const char *name, const char *text);

/* Writes a record of this text. guard: NULL for none. Returns the error; suite_put_text() asserts that
   there is none. */
int suite_write_text(struct store_suite *s, const char *name, const char *text,
                     const struct store_record *guard, struct err *err);
void suite_put_text(struct store_suite *s, const char *name, const char *text);

/* The store has the block, and with exactly these bytes. */
void assert_block(struct store *store, const char *key, const void *data, size_t size);

/* text NULL: there is no such record. */
void assert_record(struct store *store, const char *name, const char *text);

/* Runs the tests, which ON_STORE names, on each kind of store. Returns how many failed. The last n_reopening
   open their store a second time; memory: skips them, because each of its stores is another. */
int store_suite_run(const struct CMUnitTest *tests, size_t n_tests, size_t n_reopening);

#define ON_STORE(test)                                                                                       \
  { #test, test, NULL, NULL, NULL }

#endif

#include "tests/support/storage/store_suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "common/agree/random.h"
#include "common/base/memory.h"

enum { NAME_SIZE = 128, TESTS_MAX = 32 };

const char *suite_name(const struct store_suite *s, const char *rest) {
  static _Thread_local char names[16][NAME_SIZE];
  static _Thread_local int next;
  char *name = names[next++ % 16];
  snprintf(name, NAME_SIZE, "%s/%s", s->prefix, rest);
  return name;
}

char *suite_content(const struct store_suite *s, uint64_t i, size_t size) {
  char *bytes = malloc(size + 8);
  assert_non_null(bytes);
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = random_bits(random_key(s->salt, i, 0, 0), at / 8);
    memcpy(bytes + at, &word, 8);
  }
  return bytes;
}

void suite_delete_later(struct store_suite *s, const char *key) {
  assert_true(s->n_keys_written < SUITE_KEYS_MAX);
  memcpy(s->keys_written[s->n_keys_written++], key, STORE_KEY_SIZE);
}

void suite_put(struct store_suite *s, const void *data, size_t size, char key[STORE_KEY_SIZE]) {
  struct err err = ERR_NONE;
  assert_int_equal(store_put(s->store, data, size, key, &err), 0);
  suite_delete_later(s, key);
}

void suite_put_content(struct store_suite *s, uint64_t i, size_t size, char key[STORE_KEY_SIZE]) {
  char *bytes = suite_content(s, i, size);
  suite_put(s, bytes, size, key);
  free(bytes);
}

bool suite_has(struct store_suite *s, const char *key) {
  struct err err = ERR_NONE;
  bool is_there;
  assert_int_equal(store_has_blocks(s->store, &key, 1, &is_there, &err), 0);
  return is_there;
}

struct store_record text_record(const char *name, const char *text) {
  return (struct store_record){.name = name, .data = text, .size = text ? strlen(text) : 0};
}

int suite_write_text(struct store_suite *s, const char *name, const char *text,
                     const struct store_record *guard, struct err *err) {
  return store_put_record(s->store, &(struct store_record){name, text, strlen(text), guard}, err);
}

void suite_put_text(struct store_suite *s, const char *name, const char *text) {
  struct err err = ERR_NONE;
  if (suite_write_text(s, name, text, NULL, &err))
    fail_msg("%s", err.text);
}

void assert_block(struct store *store, const char *key, const void *data, size_t size) {
  struct err err = ERR_NONE;
  size_t got_size;
  void *got;
  if (store_get(store, key, &got, &got_size, &err))
    fail_msg("%s", err.text);
  assert_int_equal(got_size, size);
  assert_memory_equal(got, data, size);
  free(got);
}

void assert_record(struct store *store, const char *name, const char *text) {
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  int rc = store_get_record(store, name, &data, &size, &err);
  if (!text) {
    assert_int_equal(rc, ERR_NOT_FOUND);
    assert_null(data);
    return;
  }
  if (rc)
    fail_msg("%s", err.text);
  assert_int_equal(size, strlen(text));
  assert_memory_equal(data, text, size);
  free(data);
}

static int suite_begin(void **state) {
  struct store_suite *s = mem_new(sizeof *s);
  struct err err = ERR_NONE;
  s->kind = *state;
  *state = s;
  assert_int_equal(getrandom(&s->salt, sizeof s->salt, 0), sizeof s->salt);
  snprintf(s->prefix, sizeof s->prefix, "t%016llx", (unsigned long long)s->salt);
  if (strcmp(s->kind, "file") == 0) {
    strcpy(s->folder, "/tmp/weir-store-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    s->url = mem_printf("file://%s/below/it", s->folder);
  } else
    s->url = mem_strdup(strcmp(s->kind, "memory") ? getenv("WEIR_TEST_STORE") : "memory://");
  if (store_open(s->url, &s->store, &err))
    print_error("%s\n", err.text);
  return err.code;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at) {
  (void)status, (void)type, (void)at;
  return remove(path);
}

static int suite_end(void **state) {
  struct store_suite *s = *state;
  struct store_names names;
  struct err err = ERR_NONE;
  assert_int_equal(store_list_records(s->store, s->prefix, &names, &err), 0);
  for (int i = 0; i < names.count; i++)
    assert_int_equal(store_delete_record(s->store, names.items[i], NULL, &err), 0);
  store_names_fini(&names);
  for (int i = 0; i < s->n_keys_written; i++) {
    const char *key = s->keys_written[i];
    assert_int_equal(store_delete_blocks(s->store, &key, 1, &err), 0);
  }
  store_close(s->store);
  if (strcmp(s->kind, "file") == 0)
    nftw(s->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  free(s->url);
  free(s);
  return 0;
}

int store_suite_run(const struct CMUnitTest *tests, size_t n_tests, size_t n_reopening) {
  static const char *const kinds[] = {"memory", "file", "given"};
  struct CMUnitTest own[TESTS_MAX];
  int failed = 0;
  assert_in_range(n_tests, 1, TESTS_MAX);
  for (int i = 0; i < (getenv("WEIR_TEST_STORE") ? 3 : 2); i++) {
    for (size_t t = 0; t < n_tests; t++)
      own[t] =
          (struct CMUnitTest){tests[t].name, tests[t].test_func, suite_begin, suite_end, (void *)kinds[i]};
    failed += _cmocka_run_group_tests(kinds[i], own, n_tests - (i == 0 ? n_reopening : 0), NULL, NULL);
  }
  return failed;
}

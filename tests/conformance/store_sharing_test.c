/* Every store may be used by several threads and handles, is there again after reopening, and sweeps only
   what is left over. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/sha256.h"
#include "tests/support/storage/store_suite.h"

enum { THREADS = 8, INCREMENTS = 12, SHARED = 8 };

/* Threads that use the store of a test at the same time. */
struct users {
  struct store_suite *suite;
  int failures; /* atomic */
  bool is_done; /* atomic: they shall end */
};

static void users_fail(struct users *users) {
  __atomic_fetch_add(&users->failures, 1, __ATOMIC_RELAXED);
}

static int add_one(struct store *to, const char *name) {
  struct err err = ERR_NONE;
  for (;;) {
    char old_text[32] = "0", new_text[32];
    struct store_record guard = {.name = name};
    void *data;
    size_t size;
    int rc = store_get_record(to, name, &data, &size, &err);
    if (rc && rc != ERR_NOT_FOUND)
      return rc;
    if (!rc) {
      snprintf(old_text, sizeof old_text, "%.*s", (int)size, (char *)data);
      guard = (struct store_record){.name = name, .data = data, .size = size};
    }
    snprintf(new_text, sizeof new_text, "%d", atoi(old_text) + 1);
    rc = store_put_record(to, &(struct store_record){name, new_text, strlen(new_text), &guard}, &err);
    free(data);
    if (rc != ERR_STALE && rc != ERR_TIMEOUT) /* a disk may be so slow that a lock is not had in time */
      return rc;
  }
}

static void *increment(void *arg) {
  struct users *users = arg;
  struct store_suite *s = users->suite;
  for (int i = 0; i < INCREMENTS; i++)
    if (add_one(s->store, suite_name(s, "counter")))
      users_fail(users);
  return NULL;
}

static void *put_shared(void *arg) {
  struct users *users = arg;
  struct store_suite *s = users->suite;
  for (uint64_t i = 0; i < SHARED; i++) {
    struct err err = ERR_NONE;
    struct store_record shared = {suite_name(s, "shared"), &i, sizeof i, NULL};
    char key[STORE_KEY_SIZE], *bytes = suite_content(s, i, 20000);
    int rc = store_put(s->store, bytes, 20000, key, &err);
    while (!rc && (rc = store_put_record(s->store, &shared, &err)) == ERR_TIMEOUT)
      rc = 0;
    if (rc)
      users_fail(users);
    free(bytes);
  }
  return NULL;
}

static void in_threads(struct store_suite *s, void *(*work)(void *)) {
  pthread_t threads[THREADS];
  struct users users = {.suite = s};
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, work, &users), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  assert_int_equal(users.failures, 0);
}

static void no_increment_of_eight_threads_is_lost(void **state) {
  struct store_suite *s = *state;
  char expected[32];
  in_threads(s, increment);
  snprintf(expected, sizeof expected, "%d", THREADS * INCREMENTS);
  assert_record(s->store, suite_name(s, "counter"), expected);
}

static void puts_of_the_same_names_at_a_time_all_succeed(void **state) {
  struct store_suite *s = *state;
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  in_threads(s, put_shared);
  for (uint64_t i = 0; i < SHARED; i++) {
    char key[STORE_KEY_SIZE], *bytes = suite_content(s, i, 20000);
    sha256_hex(bytes, 20000, key);
    suite_delete_later(s, key);
    assert_block(s->store, key, bytes, 20000);
    free(bytes);
  }
  assert_int_equal(store_get_record(s->store, suite_name(s, "shared"), &data, &size, &err), 0);
  assert_int_equal(size, sizeof(uint64_t));
  free(data);
}

static void *write_on(void *arg) {
  struct users *users = arg;
  struct store_suite *s = users->suite;
  for (int i = 0; !__atomic_load_n(&users->is_done, __ATOMIC_RELAXED); i++) {
    char name[32];
    struct err err = ERR_NONE;
    int rc;
    snprintf(name, sizeof name, "new/%d", i % 50);
    rc = i % 100 < 50 ? suite_write_text(s, suite_name(s, name), "x", NULL, &err)
                      : store_delete_record(s->store, suite_name(s, name), NULL, &err);
    if (rc && rc != ERR_TIMEOUT)
      users_fail(users);
  }
  return NULL;
}

static void lists_stay_whole_while_others_write(void **state) {
  struct store_suite *s = *state;
  pthread_t writer;
  struct users users = {.suite = s};
  for (int i = 0; i < 20; i++) {
    char name[32];
    snprintf(name, sizeof name, "old/%02d", i);
    suite_put_text(s, suite_name(s, name), "x");
  }
  assert_int_equal(pthread_create(&writer, NULL, write_on, &users), 0);
  for (int round = 0; round < 30; round++) {
    struct store_names names;
    struct err err = ERR_NONE;
    int n_old = 0;
    assert_int_equal(store_list_records(s->store, s->prefix, &names, &err), 0);
    for (int i = 0; i < names.count; i++) {
      n_old += strstr(names.items[i], "/old/") != NULL;
      assert_true(i == 0 || strcmp(names.items[i - 1], names.items[i]) < 0);
    }
    assert_int_equal(n_old, 20);
    store_names_fini(&names);
  }
  __atomic_store_n(&users.is_done, true, __ATOMIC_RELAXED);
  pthread_join(writer, NULL);
  assert_int_equal(users.failures, 0);
}

static void a_sweep_leaves_what_is_whole(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE], *bytes = suite_content(s, 0, 5000);
  struct err err = ERR_NONE;
  suite_put(s, bytes, 5000, key);
  suite_put_text(s, suite_name(s, "a/b"), "1");
  assert_int_equal(store_sweep(s->store, 3600, &err), 0);
  assert_block(s->store, key, bytes, 5000);
  assert_record(s->store, suite_name(s, "a/b"), "1");
  free(bytes);
}

static void two_handles_see_each_other(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE], *bytes = suite_content(s, 0, 5000);
  struct err err = ERR_NONE;
  struct store_record guard;
  struct store *second;
  assert_int_equal(store_open(s->url, &second, &err), 0);
  suite_put(s, bytes, 5000, key);
  assert_block(second, key, bytes, 5000);
  suite_put_text(s, suite_name(s, "a"), "1");
  assert_record(second, suite_name(s, "a"), "1");
  assert_int_equal(store_put_record(second, &(struct store_record){suite_name(s, "a"), "2", 1, NULL}, &err),
                   0);
  guard = text_record(suite_name(s, "a"), "1");
  assert_int_equal(suite_write_text(s, suite_name(s, "a"), "3", &guard, &err), ERR_STALE);
  assert_record(s->store, suite_name(s, "a"), "2");
  store_close(second);
  assert_block(s->store, key, bytes, 5000);
  free(bytes);
}

static void what_was_written_is_there_after_reopening(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE], *bytes = suite_content(s, 0, 5000);
  struct err err = ERR_NONE;
  suite_put(s, bytes, 5000, key);
  suite_put_text(s, suite_name(s, "a"), "1");
  store_close(s->store);
  assert_int_equal(store_open(s->url, &s->store, &err), 0);
  assert_block(s->store, key, bytes, 5000);
  assert_record(s->store, suite_name(s, "a"), "1");
  free(bytes);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      ON_STORE(no_increment_of_eight_threads_is_lost),
      ON_STORE(puts_of_the_same_names_at_a_time_all_succeed),
      ON_STORE(lists_stay_whole_while_others_write),
      ON_STORE(a_sweep_leaves_what_is_whole),
      ON_STORE(two_handles_see_each_other),
      ON_STORE(what_was_written_is_there_after_reopening),
  };
  return store_suite_run(tests, sizeof tests / sizeof *tests, 2);
}

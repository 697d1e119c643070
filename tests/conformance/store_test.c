/* What every store does, tried on one in memory, on one of files and, where WEIR_TEST_STORE names one, on
   that. Names and contents are fresh in each run: the store need not be empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/random.h"
#include "storage/store.h"

enum { MANY = 2 * STORE_BATCH_MAX + 7, THREADS = 8, INCREMENTS = 25, BIG_BYTES = 4 << 20, STORES_MAX = 3 };

static struct {
  char *url;
  bool is_shared; /* what one process writes another sees */
} places[STORES_MAX];
static int n_places;
static char folder[] = "/tmp/weir-store-XXXXXX";

static const char *url; /* of the test in progress */
static struct store *store;
static char prefix[32]; /* of this test's records, with a slash at the end */
static uint64_t seed;

static int setup(void **state) {
  struct err err;
  int place = *(int *)*state;
  url = places[place].url;
  seed = random_key(clock_now_ns(), (uint64_t)getpid(), 0, 0);
  snprintf(prefix, sizeof prefix, "t%012llx/", (unsigned long long)(seed >> 16));
  return store_open(url, &store, &err);
}

static int teardown(void **state) {
  struct store_names names;
  struct err err;
  (void)state;
  if (store_list_records(store, prefix, &names, &err) == 0)
    for (int i = 0; i < names.count; i++)
      store_delete_record(store, names.items[i], NULL, 0, &err);
  store_names_fini(&names);
  store_close(store);
  return 0;
}

static char *name(const char *rest) {
  return mem_printf("%s%s", prefix, rest);
}

/* Content that no other test and no other i has. */
static char *content(uint64_t i, size_t size) {
  char *bytes = mem_new(size + sizeof(uint64_t));
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = random_key(seed, i, at, 1);
    memcpy(bytes + at, &word, sizeof word);
  }
  return bytes;
}

static void put_record(const char *record, const char *text) {
  struct err err;
  assert_int_equal(store_put_record(store, record, text, strlen(text), NULL, 0, &err), 0);
}

static void assert_record(const char *record, const char *text) {
  struct err err;
  void *data;
  size_t size;
  assert_int_equal(store_get_record(store, record, &data, &size, &err), 0);
  assert_int_equal(size, strlen(text));
  assert_memory_equal(data, text, size);
  free(data);
}

static void assert_block(const char *key, const void *bytes, size_t size) {
  struct err err;
  void *data;
  size_t found;
  assert_int_equal(store_get(store, key, &data, &found, &err), 0);
  assert_int_equal(found, size);
  assert_memory_equal(data, bytes, size);
  free(data);
}

/* ---- blocks ---- */

static void blocks_of_any_size_read_back(void **state) {
  static const size_t sizes[] = {0, 1, 13, 65536, 262144, BIG_BYTES};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *bytes = content(i, sizes[i]), key[STORE_KEY_SIZE];
    struct err err;
    assert_int_equal(store_put(store, bytes, sizes[i], key, &err), 0);
    assert_block(key, bytes, sizes[i]);
    free(bytes);
  }
}

static void a_block_in_parts_is_the_block_of_all_of_them(void **state) {
  char *bytes = content(0, 1000), key[STORE_KEY_SIZE];
  struct store_block block = {.parts = {{bytes, 300}, {bytes + 300, 700}}, .n_parts = 2};
  uint64_t written = 5;
  struct err err;
  (void)state;
  assert_int_equal(store_put_blocks(store, &block, 1, &written, &err), 0);
  assert_false(block.was_there);
  assert_int_equal(written, 1005);
  assert_int_equal(store_put(store, bytes, 1000, key, &err), 0);
  assert_string_equal(key, block.sha256);
  assert_block(key, bytes, 1000);
  free(bytes);
}

static void what_is_there_is_not_written_again(void **state) {
  char *bytes = content(0, 5000);
  struct store_block blocks[2] = {{.parts = {{bytes, 5000}}, .n_parts = 1},
                                  {.parts = {{bytes, 4000}}, .n_parts = 1}};
  uint64_t written = 0;
  struct err err;
  (void)state;
  assert_int_equal(store_put_blocks(store, blocks, 1, &written, &err), 0);
  assert_int_equal(store_put_blocks(store, blocks, 2, &written, &err), 0);
  assert_true(blocks[0].was_there);
  assert_false(blocks[1].was_there);
  assert_int_equal(written, 9000);
  assert_block(blocks[0].sha256, bytes, 5000);
  free(bytes);
}

/* More than a batch; every third is not there. */
static void many_blocks_are_told_apart(void **state) {
  struct store_block blocks[MANY];
  const char *keys[MANY];
  char *bytes[MANY];
  bool has[MANY];
  struct err err;
  (void)state;
  for (int i = 0; i < MANY; i++) {
    bytes[i] = content((uint64_t)i, 3000);
    blocks[i] = (struct store_block){.parts = {{bytes[i], 3000}}, .n_parts = 1};
    keys[i] = blocks[i].sha256;
  }
  assert_int_equal(store_put_blocks(store, blocks, MANY, NULL, &err), 0);
  for (int i = 0; i < MANY; i += 3)
    assert_int_equal(store_delete_blocks(store, keys + i, 1, &err), 0);
  assert_int_equal(store_has_blocks(store, keys, MANY, has, &err), 0);
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(has[i], i % 3 != 0);
    if (has[i])
      assert_block(keys[i], bytes[i], 3000);
    free(bytes[i]);
  }
  assert_int_equal(store_delete_blocks(store, keys, MANY, &err), 0); /* those that are not there too */
  assert_int_equal(store_has_blocks(store, keys, MANY, has, &err), 0);
  for (int i = 0; i < MANY; i++)
    assert_false(has[i]);
}

static void a_batch_reads_back_in_its_order(void **state) {
  const char *keys[STORE_BATCH_MAX];
  char found[STORE_BATCH_MAX][STORE_KEY_SIZE];
  void *data[STORE_BATCH_MAX];
  size_t sizes[STORE_BATCH_MAX];
  struct err err;
  (void)state;
  for (int i = 0; i < STORE_BATCH_MAX; i++) {
    char *bytes = content((uint64_t)i, 100 + (size_t)i);
    assert_int_equal(store_put(store, bytes, 100 + (size_t)i, found[i], &err), 0);
    keys[STORE_BATCH_MAX - 1 - i] = found[i];
    free(bytes);
  }
  assert_int_equal(store_get_blocks(store, keys, STORE_BATCH_MAX, data, sizes, &err), 0);
  for (int i = 0; i < STORE_BATCH_MAX; i++) {
    assert_int_equal(sizes[i], 100 + STORE_BATCH_MAX - 1 - i);
    free(data[i]);
  }
}

static void a_missing_block_is_named(void **state) {
  static const char missing[] = "00000000000000000000000000000000000000000000000000000000deadbeef";
  char *bytes = content(0, 10), key[STORE_KEY_SIZE];
  const char *keys[2] = {key, missing};
  void *data[2];
  size_t sizes[2];
  struct err err;
  (void)state;
  assert_int_equal(store_put(store, bytes, 10, key, &err), 0);
  assert_int_equal(store_get_blocks(store, keys, 2, data, sizes, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, missing));
  assert_null(data[0]);
  assert_null(data[1]);
  free(bytes);
}

static void a_key_that_is_none_is_refused(void **state) {
  static const char *const keys[] = {"", "abc", "../../../../etc/passwd",
                                     "ABCDEF0000000000000000000000000000000000000000000000000000000000"};
  void *data;
  size_t size;
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_int_equal(store_get(store, keys[i], &data, &size, &err), ERR_INVALID);
    assert_int_equal(store_delete_blocks(store, &keys[i], 1, &err), ERR_INVALID);
  }
}

struct listing {
  const char *wanted[3];
  uint64_t sizes[3];
  int times[3];
};

static int list_one(void *user, const char *key, uint64_t size_bytes) {
  struct listing *listing = user;
  for (int i = 0; i < 3; i++)
    if (strcmp(key, listing->wanted[i]) == 0) {
      listing->times[i]++;
      listing->sizes[i] = size_bytes;
    }
  return 0;
}

static int stop_at_once(void *user, const char *key, uint64_t size_bytes) {
  (void)key;
  (void)size_bytes;
  return ++*(int *)user + 41;
}

static void a_list_has_every_block_once_with_its_size(void **state) {
  struct listing listing = {.times = {0}};
  char keys[3][STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  int calls = 0;
  (void)state;
  for (int i = 0; i < 3; i++) {
    char *bytes = content((uint64_t)i, 1000 * (size_t)(i + 1));
    assert_int_equal(store_put(store, bytes, 1000 * (size_t)(i + 1), keys[i], &err), 0);
    listing.wanted[i] = keys[i];
    free(bytes);
  }
  assert_int_equal(store_list_blocks(store, list_one, &listing, &err), 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(listing.times[i], 1);
    assert_int_equal(listing.sizes[i], 1000 * (i + 1));
  }
  assert_int_equal(store_list_blocks(store, stop_at_once, &calls, &err), 42);
  assert_int_equal(calls, 1);
}

/* ---- records ---- */

static void a_record_is_replaced_and_deleted(void **state) {
  char *record = name("run"), *big = content(1, BIG_BYTES);
  struct err err;
  void *data;
  size_t size;
  (void)state;
  put_record(record, "first");
  put_record(record, "");
  assert_record(record, "");
  assert_int_equal(store_put_record(store, record, big, BIG_BYTES, NULL, 0, &err), 0);
  assert_int_equal(store_get_record(store, record, &data, &size, &err), 0);
  assert_int_equal(size, BIG_BYTES);
  assert_memory_equal(data, big, size);
  free(data);
  for (int i = 0; i < 2; i++) /* also where there is none */
    assert_int_equal(store_delete_record(store, record, NULL, 0, &err), 0);
  assert_int_equal(store_get_record(store, record, &data, &size, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, record));
  free(record);
  free(big);
}

static void guards_that_hold_let_a_write_pass(void **state) {
  char *a = name("a"), *b = name("b"), *c = name("c");
  struct store_guard guards[3] = {{a, "one", 3}, {b, "", 0}, {c, NULL, 0}};
  struct err err;
  (void)state;
  put_record(a, "one");
  put_record(b, "");
  assert_int_equal(store_put_record(store, c, "new", 3, guards, 3, &err), 0);
  assert_record(c, "new");
  assert_int_equal(store_delete_record(store, c, guards, 2, &err), 0);
  assert_int_equal(store_put_record(store, a, "two", 3, guards, 3, &err), 0); /* a guard of itself */
  assert_record(a, "two");
  free(a);
  free(b);
  free(c);
}

static void a_guard_that_does_not_hold_changes_nothing(void **state) {
  char *a = name("a"), *b = name("b"), *target = name("target");
  const struct store_guard wrong[] = {{a, "onE", 3}, {a, "one1", 4}, {a, "on", 2}, {a, "", 0},
                                      {a, NULL, 0},  {b, "", 0},     {b, "one", 3}};
  struct err err;
  (void)state;
  put_record(a, "one");
  put_record(target, "kept");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct store_guard guards[2] = {{a, "one", 3}, wrong[i]};
    err = ERR_NONE;
    assert_int_equal(store_put_record(store, target, "lost", 4, guards, 2, &err), ERR_STALE);
    assert_non_null(strstr(err.text, wrong[i].name));
    assert_int_equal(store_delete_record(store, target, guards, 2, &err), ERR_STALE);
    assert_int_equal(store_put_record(store, b, "lost", 4, guards, 2, &err), ERR_STALE);
  }
  assert_record(target, "kept");
  assert_record(a, "one");
  free(a);
  free(b);
  free(target);
}

static void records_are_listed_by_prefix_in_order(void **state) {
  static const char *const rests[] = {"runs/b/run",
                                      "runs/a/run",
                                      "runs/a/checkpoints/00000000000000000020",
                                      "runs/a/checkpoints/00000000000000000003",
                                      "runs/ab/run",
                                      "other"};
  static const char *const expected[] = {"runs/a/checkpoints/00000000000000000003",
                                         "runs/a/checkpoints/00000000000000000020", "runs/a/run"};
  char *wanted = name("runs/a/"), *middle = name("runs/a"), *none = name("nothing");
  struct store_names names;
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
    char *record = name(rests[i]);
    put_record(record, rests[i]);
    free(record);
  }
  assert_int_equal(store_list_records(store, wanted, &names, &err), 0);
  assert_int_equal(names.count, 3);
  for (int i = 0; i < 3; i++)
    assert_string_equal(names.items[i] + strlen(prefix), expected[i]);
  store_names_fini(&names);
  assert_int_equal(store_list_records(store, middle, &names, &err), 0);
  assert_int_equal(names.count, 4);
  store_names_fini(&names);
  assert_int_equal(store_list_records(store, prefix, &names, &err), 0);
  assert_int_equal(names.count, 6);
  store_names_fini(&names);
  assert_int_equal(store_list_records(store, none, &names, &err), 0);
  assert_int_equal(names.count, 0);
  store_names_fini(&names);
  free(wanted);
  free(middle);
  free(none);
}

static void names_that_are_none_are_refused(void **state) {
  static const char *const wrong[] = {"",     "/a", "a/",  "a//b", "../a", "a/../b",
                                      "a/.b", "A",  "a b", "a*",   "a\n"};
  struct store_guard guard = {.name = "../../etc/passwd"};
  struct store_names names;
  void *data;
  size_t size;
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(store_put_record(store, wrong[i], "x", 1, NULL, 0, &err), ERR_INVALID);
    assert_int_equal(store_get_record(store, wrong[i], &data, &size, &err), ERR_INVALID);
    assert_int_equal(store_delete_record(store, wrong[i], NULL, 0, &err), ERR_INVALID);
  }
  assert_int_equal(store_put_record(store, "a", "x", 1, &guard, 1, &err), ERR_INVALID);
  assert_int_equal(store_list_records(store, "a*", &names, &err), ERR_INVALID);
}

static void a_sweep_takes_nothing_that_is_whole(void **state) {
  char *bytes = content(0, 1000), key[STORE_KEY_SIZE], *record = name("run");
  struct err err;
  (void)state;
  assert_int_equal(store_put(store, bytes, 1000, key, &err), 0);
  put_record(record, "kept");
  assert_int_equal(store_sweep(store, 0, &err), 0);
  assert_block(key, bytes, 1000);
  assert_record(record, "kept");
  free(bytes);
  free(record);
}

/* ---- several at a time ---- */

/* Adds one to a record by compare-and-set, again and again. Returns what went wrong. */
static int increment(struct store *through, const char *record, int times) {
  struct err err;
  for (int done = 0; done < times;) {
    char text[32];
    void *data;
    size_t size;
    struct store_guard guard = {.name = record};
    int rc = store_get_record(through, record, &data, &size, &err);
    if (rc && rc != ERR_NOT_FOUND)
      return rc;
    snprintf(text, sizeof text, "%d", rc ? 1 : atoi(data) + 1);
    guard.data = data;
    guard.size = size;
    rc = store_put_record(through, record, text, strlen(text) + 1, &guard, 1, &err);
    free(data);
    if (rc && rc != ERR_STALE)
      return rc;
    done += rc == 0;
  }
  return 0;
}

static void *increment_main(void *record) {
  return (void *)(intptr_t)increment(store, record, INCREMENTS);
}

static void assert_count(const char *record, int count) {
  void *data;
  size_t size;
  struct err err;
  assert_int_equal(store_get_record(store, record, &data, &size, &err), 0);
  assert_int_equal(atoi(data), count);
  free(data);
}

static void threads_lose_no_update_that_is_guarded(void **state) {
  pthread_t threads[THREADS];
  char *record = name("count");
  (void)state;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, increment_main, record), 0);
  for (int i = 0; i < THREADS; i++) {
    void *result;
    pthread_join(threads[i], &result);
    assert_int_equal((intptr_t)result, 0);
  }
  assert_count(record, THREADS * INCREMENTS);
  free(record);
}

static void processes_lose_no_update_that_is_guarded(void **state) {
  pid_t children[THREADS / 2];
  char *record = name("count");
  (void)state;
  for (int i = 0; i < THREADS / 2; i++) {
    children[i] = fork();
    if (children[i] == 0) {
      struct store *own;
      struct err err;
      _exit(store_open(url, &own, &err) || increment(own, record, INCREMENTS));
    }
    assert_true(children[i] > 0);
  }
  for (int i = 0; i < THREADS / 2; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  assert_count(record, THREADS / 2 * INCREMENTS);
  free(record);
}

static void *put_main(void *unused) {
  intptr_t failures = 0;
  (void)unused;
  for (uint64_t i = 0; i < 20; i++) {
    char *bytes = content(i, 20000), key[STORE_KEY_SIZE];
    void *data;
    size_t size;
    struct err err;
    failures += store_put(store, bytes, 20000, key, &err) != 0;
    failures += store_get(store, key, &data, &size, &err) != 0;
    free(data);
    free(bytes);
  }
  return (void *)failures;
}

static void threads_may_put_the_same_blocks(void **state) {
  pthread_t threads[THREADS];
  (void)state;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, put_main, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *failures;
    pthread_join(threads[i], &failures);
    assert_int_equal((intptr_t)failures, 0);
  }
}

static void what_is_written_is_there_for_who_opens_the_store_later(void **state) {
  char *bytes = content(0, 1000), key[STORE_KEY_SIZE], *record = name("run");
  struct err err;
  (void)state;
  assert_int_equal(store_put(store, bytes, 1000, key, &err), 0);
  put_record(record, "kept");
  store_close(store);
  assert_int_equal(store_open(url, &store, &err), 0);
  assert_block(key, bytes, 1000);
  assert_record(record, "kept");
  free(bytes);
  free(record);
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status;
  (void)kind;
  (void)place;
  return remove(path);
}

int main(void) {
  static int numbers[STORES_MAX] = {0, 1, 2};
#define TEST(function)                                                                                       \
  { #function, function, setup, teardown, NULL }
  struct CMUnitTest tests[] = {
      TEST(blocks_of_any_size_read_back),
      TEST(a_block_in_parts_is_the_block_of_all_of_them),
      TEST(what_is_there_is_not_written_again),
      TEST(many_blocks_are_told_apart),
      TEST(a_batch_reads_back_in_its_order),
      TEST(a_missing_block_is_named),
      TEST(a_key_that_is_none_is_refused),
      TEST(a_list_has_every_block_once_with_its_size),
      TEST(a_record_is_replaced_and_deleted),
      TEST(guards_that_hold_let_a_write_pass),
      TEST(a_guard_that_does_not_hold_changes_nothing),
      TEST(records_are_listed_by_prefix_in_order),
      TEST(names_that_are_none_are_refused),
      TEST(a_sweep_takes_nothing_that_is_whole),
      TEST(threads_lose_no_update_that_is_guarded),
      TEST(threads_may_put_the_same_blocks),
      TEST(processes_lose_no_update_that_is_guarded),
      TEST(what_is_written_is_there_for_who_opens_the_store_later),
  };
  enum { N = sizeof tests / sizeof *tests, N_OF_SHARED = 2 }; /* the last two need a store that is shared */
  static struct CMUnitTest all[STORES_MAX * N];
  const char *given = getenv("WEIR_TEST_STORE");
  char *names[STORES_MAX * N];
  int failed, n_all = 0;
  places[n_places++].url = mem_strdup("memory://");
  if (mkdtemp(folder)) {
    places[n_places].url = mem_printf("file://%s", folder);
    places[n_places++].is_shared = true;
  }
  if (given && *given) {
    places[n_places].url = mem_strdup(given);
    places[n_places++].is_shared = true;
  }
  for (int p = 0; p < n_places; p++)
    for (int t = 0; t < N - (places[p].is_shared ? 0 : N_OF_SHARED); t++) {
      int scheme = (int)strcspn(places[p].url, ":");
      all[n_all] = tests[t];
      all[n_all].initial_state = &numbers[p];
      all[n_all].name = names[n_all] = mem_printf("%.*s_%s", scheme, places[p].url, tests[t].name);
      n_all++;
    }
  failed = _cmocka_run_group_tests("stores", all, (size_t)n_all, NULL, NULL);
  nftw(folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
  for (int i = 0; i < n_all; i++)
    free(names[i]);
  for (int p = 0; p < n_places; p++)
    free(places[p].url);
  return failed;
}

/* What every store does, tried on memory:, on file: in a fresh directory, and on the one that WEIR_TEST_STORE
   names. That one may be used by others too: names and contents are of this run alone, and what was written
   goes at the end of each test. */
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
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/sha256.h"
#include "storage/store.h"

enum { KEYS_MAX = 512, NAME_SIZE = 128 };

static const char *kind; /* "memory", "file" or "given" */
static char *url, folder[64];
static struct store *store;
static uint64_t salt; /* makes names and contents this test's own */
static char prefix[48];
static char keys_written[KEYS_MAX][STORE_KEY_SIZE];
static int n_keys_written;

static int setup(void **state) {
  struct err err = ERR_NONE;
  kind = *state;
  assert_int_equal(getrandom(&salt, sizeof salt, 0), sizeof salt);
  snprintf(prefix, sizeof prefix, "t%016llx", (unsigned long long)salt);
  n_keys_written = 0;
  if (strcmp(kind, "file") == 0) {
    strcpy(folder, "/tmp/weir-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    url = mem_printf("file://%s/below/it", folder);
  } else
    url = mem_strdup(strcmp(kind, "memory") ? getenv("WEIR_TEST_STORE") : "memory://");
  if (store_open(url, &store, &err))
    print_error("%s\n", err.text);
  return err.code;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at) {
  (void)status, (void)type, (void)at;
  return remove(path);
}

static int teardown(void **state) {
  struct store_names names;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(store_list_records(store, prefix, &names, &err), 0);
  for (int i = 0; i < names.count; i++)
    assert_int_equal(store_delete_record(store, names.items[i], NULL, &err), 0);
  store_names_fini(&names);
  for (int i = 0; i < n_keys_written; i++) {
    const char *key = keys_written[i];
    assert_int_equal(store_delete_blocks(store, &key, 1, &err), 0);
  }
  store_close(store);
  if (strcmp(kind, "file") == 0)
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  free(url);
  return 0;
}

static const char *named(const char *rest) {
  static _Thread_local char names[16][NAME_SIZE];
  static _Thread_local int next;
  char *name = names[next++ % 16];
  snprintf(name, NAME_SIZE, "%s/%s", prefix, rest);
  return name;
}

static void forget_later(const char *key) {
  assert_true(n_keys_written < KEYS_MAX);
  memcpy(keys_written[n_keys_written++], key, STORE_KEY_SIZE);
}

/* Bytes of block i; freed by the caller. */
static char *content(uint64_t i, size_t size) {
  char *bytes = malloc(size + 8);
  assert_non_null(bytes);
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = random_bits(random_key(salt, i, 0, 0), at / 8);
    memcpy(bytes + at, &word, 8);
  }
  return bytes;
}

static void put(const void *data, size_t size, char key[STORE_KEY_SIZE]) {
  struct err err = ERR_NONE;
  assert_int_equal(store_put(store, data, size, key, &err), 0);
  forget_later(key);
}

static void put_content(uint64_t i, size_t size, char key[STORE_KEY_SIZE]) {
  char *bytes = content(i, size);
  put(bytes, size, key);
  free(bytes);
}

static void assert_holds(struct store *from, const char *key, const void *data, size_t size) {
  struct err err = ERR_NONE;
  size_t got_size;
  void *got;
  if (store_get(from, key, &got, &got_size, &err))
    fail_msg("%s", err.text);
  assert_int_equal(got_size, size);
  assert_memory_equal(got, data, size);
  free(got);
}

static bool has(const char *key) {
  struct err err = ERR_NONE;
  bool is_there;
  assert_int_equal(store_has_blocks(store, &key, 1, &is_there, &err), 0);
  return is_there;
}

static int write_text(const char *name, const char *text, const struct store_record *guard, struct err *err) {
  return store_put_record(store, &(struct store_record){name, text, strlen(text), guard}, err);
}

static void put_text(const char *name, const char *text) {
  struct err err = ERR_NONE;
  if (write_text(name, text, NULL, &err))
    fail_msg("%s", err.text);
}

/* text NULL: there is no such record. */
static void assert_text(struct store *from, const char *name, const char *text) {
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  int rc = store_get_record(from, name, &data, &size, &err);
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

static struct store_record is_text(const char *name, const char *text) {
  return (struct store_record){.name = name, .data = text, .size = text ? strlen(text) : 0};
}

static void a_block_reads_back_by_its_hash(void **state) {
  char key[STORE_KEY_SIZE], expected[STORE_KEY_SIZE], *bytes = content(0, 1000);
  (void)state;
  bytes[3] = 0;
  put(bytes, 1000, key);
  sha256_hex(bytes, 1000, expected);
  assert_string_equal(key, expected);
  assert_holds(store, key, bytes, 1000);
  free(bytes);
}

static void an_empty_block_is_a_block(void **state) {
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  (void)state;
  assert_int_equal(store_put(store, "", 0, key, &err), 0);
  assert_true(has(key));
  assert_holds(store, key, "", 0);
}

static void a_block_of_4_mib_reads_back(void **state) {
  size_t size = 4 << 20;
  char key[STORE_KEY_SIZE], *bytes = content(0, size);
  (void)state;
  put(bytes, size, key);
  assert_holds(store, key, bytes, size);
  free(bytes);
}

static void a_block_is_its_parts_one_after_the_other(void **state) {
  char *bytes = content(0, 70000), expected[STORE_KEY_SIZE];
  struct store_block block = {.parts = {{bytes, 6}, {bytes + 6, 69994}}, .n_parts = 2};
  struct store_block whole = {.parts = {{bytes, 70000}, {NULL, 0}}, .n_parts = 2};
  struct store_block none = {.n_parts = 0};
  struct err err = ERR_NONE;
  uint64_t written = 5;
  (void)state;
  assert_int_equal(store_put_blocks(store, &block, 1, &written, &err), 0);
  forget_later(block.sha256);
  sha256_hex(bytes, 70000, expected);
  assert_string_equal(block.sha256, expected);
  assert_false(block.was_there);
  assert_int_equal(written, 5 + 70000);
  assert_holds(store, block.sha256, bytes, 70000);
  assert_int_equal(store_put_blocks(store, &whole, 1, &written, &err), 0);
  assert_string_equal(whole.sha256, expected);
  assert_true(whole.was_there);
  assert_int_equal(written, 5 + 70000);
  assert_int_equal(store_put_blocks(store, &none, 1, &written, &err), 0);
  assert_holds(store, none.sha256, "", 0);
  free(bytes);
}

enum { MANY = 150, MANY_SIZE = 3000 };

static void many_blocks_go_in_batches_and_what_was_there_is_not_written(void **state) {
  struct store_block blocks[MANY] = {0};
  const char *keys[MANY];
  bool is_there[MANY];
  char first[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  uint64_t written = 0;
  (void)state;
  put_content(7, MANY_SIZE, first);
  for (int i = 0; i < MANY; i++)
    blocks[i] = (struct store_block){.parts = {{content((uint64_t)i, MANY_SIZE), MANY_SIZE}}, .n_parts = 1};
  assert_int_equal(store_put_blocks(store, blocks, MANY, &written, &err), 0);
  assert_int_equal(written, (MANY - 1) * MANY_SIZE);
  for (int i = 0; i < MANY; i++) {
    forget_later(blocks[i].sha256);
    assert_int_equal(blocks[i].was_there, i == 7);
    keys[i] = blocks[i].sha256;
  }
  assert_int_equal(store_has_blocks(store, keys, MANY, is_there, &err), 0);
  for (int i = 0; i < MANY; i++) {
    assert_true(is_there[i]);
    assert_holds(store, keys[i], blocks[i].parts[0].iov_base, MANY_SIZE);
    free(blocks[i].parts[0].iov_base);
  }
  assert_int_equal(store_delete_blocks(store, keys, MANY, &err), 0);
  assert_int_equal(store_has_blocks(store, keys, MANY, is_there, &err), 0);
  for (int i = 0; i < MANY; i++)
    assert_false(is_there[i]);
}

static void the_same_block_twice_in_a_batch_is_one(void **state) {
  char *bytes = content(0, 500);
  struct store_block blocks[6] = {0};
  struct err err = ERR_NONE;
  (void)state;
  for (int i = 0; i < 6; i++)
    blocks[i] = (struct store_block){.parts = {{bytes, 500}}, .n_parts = 1};
  assert_int_equal(store_put_blocks(store, blocks, 6, NULL, &err), 0);
  forget_later(blocks[0].sha256);
  assert_holds(store, blocks[5].sha256, bytes, 500);
  free(bytes);
}

static void a_batch_reads_in_order_and_a_missing_one_is_named(void **state) {
  enum { N = STORE_BATCH_MAX };
  char found[N][STORE_KEY_SIZE];
  struct store_read reads[N];
  struct err err = ERR_NONE;
  (void)state;
  for (int i = 0; i < N; i++) {
    put_content((uint64_t)i, 100 + (size_t)i, found[i]);
    reads[i].key = found[i];
  }
  assert_int_equal(store_get_blocks(store, reads, N, &err), 0);
  for (int i = 0; i < N; i++) {
    char *bytes = content((uint64_t)i, 100 + (size_t)i);
    assert_int_equal(reads[i].size, 100 + i);
    assert_memory_equal(reads[i].data, bytes, reads[i].size);
    free(bytes);
    free(reads[i].data);
  }
  sha256_hex(&salt, sizeof salt, found[40]);
  assert_int_equal(store_get_blocks(store, reads, N, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, found[40]));
  for (int i = 0; i < N; i++)
    assert_null(reads[i].data);
}

static void a_deleted_block_is_gone_and_can_come_back(void **state) {
  char key[STORE_KEY_SIZE];
  const char *keys[2] = {key, key};
  struct err err = ERR_NONE;
  (void)state;
  put_content(0, 1000, key);
  assert_int_equal(store_delete_blocks(store, keys, 1, &err), 0);
  assert_false(has(key));
  assert_int_equal(store_delete_blocks(store, keys, 2, &err), 0);
  put_content(0, 1000, key);
  assert_true(has(key));
}

struct seen {
  char keys[20][STORE_KEY_SIZE];
  int counts[20], n, calls;
};

static int see(void *user, const char *key, uint64_t size_bytes) {
  struct seen *seen = user;
  seen->calls++;
  for (int i = 0; i < seen->n; i++)
    if (strcmp(seen->keys[i], key) == 0) {
      assert_int_equal(size_bytes, 10 + i);
      seen->counts[i]++;
    }
  return 0;
}

static int see_one(void *user, const char *key, uint64_t size_bytes) {
  (void)key, (void)size_bytes;
  ++*(int *)user;
  return 77;
}

static void every_block_is_listed_once_with_its_size(void **state) {
  struct seen seen = {.n = 20};
  struct err err = ERR_NONE;
  int calls = 0;
  (void)state;
  for (int i = 0; i < seen.n; i++)
    put_content((uint64_t)i, 10 + (size_t)i, seen.keys[i]);
  put_text(named("not-a-block"), "x");
  assert_int_equal(store_list_blocks(store, see, &seen, &err), 0);
  for (int i = 0; i < seen.n; i++)
    assert_int_equal(seen.counts[i], 1);
  assert_int_equal(store_list_blocks(store, see_one, &calls, &err), 77);
  assert_int_equal(calls, 1);
}

static int delete_seen(void *user, const char *key, uint64_t size_bytes) {
  struct err err = ERR_NONE;
  (void)size_bytes;
  for (int i = 0; i < n_keys_written; i++)
    if (strcmp(keys_written[i], key) == 0) {
      ++*(int *)user;
      return store_delete_blocks(store, &key, 1, &err);
    }
  return 0;
}

static void blocks_can_be_deleted_while_they_are_listed(void **state) {
  char key[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  int deleted = 0;
  (void)state;
  for (uint64_t i = 0; i < 100; i++)
    put_content(i, 64, key);
  assert_int_equal(store_list_blocks(store, delete_seen, &deleted, &err), 0);
  assert_int_equal(deleted, 100);
  for (int i = 0; i < n_keys_written; i++)
    assert_false(has(keys_written[i]));
}

static void a_record_is_replaced_whole(void **state) {
  (void)state;
  put_text(named("a/result"), "a long first text");
  put_text(named("a/result"), "short");
  assert_text(store, named("a/result"), "short");
  put_text(named("a/result"), "");
  assert_text(store, named("a/result"), "");
}

static void a_record_holds_any_bytes(void **state) {
  size_t size = 1 << 20, got_size;
  char *bytes = content(0, size);
  struct err err = ERR_NONE;
  void *got;
  (void)state;
  for (int i = 0; i < 256; i++)
    bytes[i] = (char)i;
  assert_int_equal(store_put_record(store, &(struct store_record){named("bytes"), bytes, size, NULL}, &err),
                   0);
  assert_int_equal(store_get_record(store, named("bytes"), &got, &got_size, &err), 0);
  assert_int_equal(got_size, size);
  assert_memory_equal(got, bytes, size);
  free(got);
  free(bytes);
}

static void a_deleted_record_is_gone(void **state) {
  struct store_record guard = is_text(named("other"), "x");
  struct err err = ERR_NONE;
  (void)state;
  put_text(named("a"), "1");
  assert_int_equal(store_delete_record(store, named("a"), &guard, &err), ERR_STALE);
  assert_text(store, named("a"), "1");
  put_text(named("other"), "x");
  assert_int_equal(store_delete_record(store, named("a"), &guard, &err), 0);
  assert_text(store, named("a"), NULL);
  assert_int_equal(store_delete_record(store, named("a"), NULL, &err), 0);
}

static void what_is_missing_is_not_found_by_name(void **state) {
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  void *data;
  size_t size;
  (void)state;
  sha256_hex(&salt, sizeof salt, key);
  assert_false(has(key));
  assert_int_equal(store_get(store, key, &data, &size, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, key));
  assert_int_equal(store_get_record(store, named("none"), &data, &size, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, named("none")));
  put_text(named("a/b"), "x");
  assert_text(store, named("a"), NULL);
  assert_text(store, named("a/b/c"), NULL);
}

static void names_that_could_escape_are_refused(void **state) {
  static const char *const bad[] = {"",     "/etc", "a/../b", "..",         ".hidden", "a/.b",
                                    "a//b", "a/",   "Upper",  "with space", "a\nb",    "runs/\xc3\xa4"};
  static const char *const bad_keys[] = {"", "../../etc/passwd", "abc"};
  char upper[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  bool is_there;
  const char *key = upper;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct store_record guard = is_text(bad[i], NULL);
    assert_int_equal(write_text(bad[i], "x", NULL, &err), ERR_INVALID);
    assert_int_equal(write_text(named("a"), "x", &guard, &err), ERR_INVALID);
    assert_int_equal(store_delete_record(store, bad[i], NULL, &err), ERR_INVALID);
    assert_int_equal(store_get_record(store, bad[i], &data, &size, &err), ERR_INVALID);
  }
  assert_text(store, named("a"), NULL);
  for (size_t i = 0; i < sizeof bad_keys / sizeof *bad_keys; i++)
    assert_int_equal(store_get(store, bad_keys[i], &data, &size, &err), ERR_INVALID);
  memset(upper, 'A', sizeof upper - 1);
  upper[sizeof upper - 1] = 0;
  assert_int_equal(store_has_blocks(store, &key, 1, &is_there, &err), ERR_INVALID);
  assert_int_equal(store_delete_blocks(store, &key, 1, &err), ERR_INVALID);
}

/* rest: the expected names below the prefix, each with a space after it. */
static void assert_list(const char *which, const char *rest) {
  char found[1024] = "";
  struct store_names names;
  struct err err = ERR_NONE;
  char *from = mem_printf("%s%s", prefix, which);
  assert_int_equal(store_list_records(store, from, &names, &err), 0);
  for (int i = 0; i < names.count; i++) {
    assert_memory_equal(names.items[i], prefix, strlen(prefix));
    strcat(found, names.items[i] + strlen(prefix));
    strcat(found, " ");
  }
  assert_string_equal(found, rest);
  store_names_fini(&names);
  free(from);
}

static void names_are_listed_by_any_prefix_ascending(void **state) {
  static const char *const all[] = {
      "runs/b/run",  "runs/a/run", "runs/a-2/run", "runs/ab/checkpoints/010", "runs/ab/checkpoints/002",
      "runs/ab/run", "run",        "z.y_x-1"};
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    put_text(named(all[i]), "x");
  assert_list("", "/run /runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
                  "/runs/ab/run /runs/b/run /z.y_x-1 ");
  assert_list("/runs/a", "/runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
                         "/runs/ab/run ");
  assert_list("/runs/a/", "/runs/a/run ");
  assert_list("/runs/ab/ch", "/runs/ab/checkpoints/002 /runs/ab/checkpoints/010 ");
  assert_list("/runs/ab/checkpoints/0", "/runs/ab/checkpoints/002 /runs/ab/checkpoints/010 ");
  assert_list("/runs/ab/checkpoints/002", "/runs/ab/checkpoints/002 ");
  assert_list("/runs/ab/checkpoints/002x", "");
  assert_list("/run", "/run /runs/a-2/run /runs/a/run /runs/ab/checkpoints/002 /runs/ab/checkpoints/010 "
                      "/runs/ab/run /runs/b/run ");
  assert_list("/z.y_", "/z.y_x-1 ");
  assert_list("/nothing", "");
}

static void a_deleted_name_is_not_listed(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  put_text(named("a/1"), "x");
  put_text(named("a/2"), "x");
  assert_int_equal(store_delete_record(store, named("a/1"), NULL, &err), 0);
  assert_list("/a/", "/a/2 ");
  put_text(named("a/1"), "x");
  assert_list("/a/", "/a/1 /a/2 ");
}

static void a_prefix_of_other_letters_is_refused(void **state) {
  static const char *const bad[] = {"Upper", "a*", "a b", "[a]"};
  struct store_names names;
  struct err err = ERR_NONE;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(store_list_records(store, bad[i], &names, &err), ERR_INVALID);
    assert_int_equal(names.count, 0);
  }
}

static void a_guard_of_absence_lets_one_writer_through(void **state) {
  struct store_record guard = is_text(named("term"), NULL);
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(write_text(named("term"), "1", &guard, &err), 0);
  assert_int_equal(write_text(named("term"), "2", &guard, &err), ERR_STALE);
  assert_non_null(strstr(err.text, named("term")));
  assert_text(store, named("term"), "1");
}

static void a_guard_holds_for_the_same_bytes_only(void **state) {
  static const char *const others[] = {"", "4", "42 ", "43", "420"};
  struct store_record guard;
  struct err err = ERR_NONE;
  (void)state;
  put_text(named("term"), "42");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    guard = is_text(named("term"), others[i]);
    assert_int_equal(write_text(named("a"), "x", &guard, &err), ERR_STALE);
  }
  assert_text(store, named("a"), NULL);
  guard = is_text(named("term"), "42");
  assert_int_equal(write_text(named("a"), "x", &guard, &err), 0);
  assert_text(store, named("a"), "x");
  put_text(named("term"), "");
  guard = is_text(named("term"), "");
  assert_int_equal(write_text(named("a"), "y", &guard, &err), 0);
  guard = is_text(named("term"), NULL);
  assert_int_equal(write_text(named("a"), "z", &guard, &err), ERR_STALE);
  guard = is_text(named("nothing"), "");
  assert_int_equal(write_text(named("a"), "z", &guard, &err), ERR_STALE);
  assert_text(store, named("a"), "y");
}

static void all_of_several_guards_must_hold(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  put_text(named("term"), "7");
  put_text(named("incarnation"), "3");
  for (int wrong = 0; wrong <= STORE_GUARDS_MAX; wrong++) {
    struct store_record guards[STORE_GUARDS_MAX] = {
        is_text(named("term"), wrong == 0 ? "6" : "7"),
        is_text(named("incarnation"), wrong == 1 ? "30" : "3"),
        is_text(named("none"), wrong == 2 ? "x" : NULL),
        is_text(named("manifest"), wrong == 3 ? "x" : NULL),
    };
    char expected[8];
    snprintf(expected, sizeof expected, "%d", wrong);
    for (int i = 1; i < STORE_GUARDS_MAX; i++)
      guards[i - 1].guard = &guards[i];
    assert_int_equal(write_text(named("manifest"), expected, guards, &err),
                     wrong < STORE_GUARDS_MAX ? ERR_STALE : 0);
    if (wrong < STORE_GUARDS_MAX)
      assert_non_null(strstr(err.text, guards[wrong].name));
    assert_text(store, named("manifest"), wrong < STORE_GUARDS_MAX ? NULL : expected);
  }
  assert_text(store, named("term"), "7");
  assert_text(store, named("incarnation"), "3");
}

enum { THREADS = 8, INCREMENTS = 12, SHARED = 8 };

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
    if (rc != ERR_STALE)
      return rc;
  }
}

static void *increment(void *failures) {
  for (int i = 0; i < INCREMENTS; i++)
    if (add_one(store, named("counter")))
      __atomic_fetch_add((int *)failures, 1, __ATOMIC_RELAXED);
  return NULL;
}

static void *put_shared(void *failures) {
  for (uint64_t i = 0; i < SHARED; i++) {
    struct err err = ERR_NONE;
    char key[STORE_KEY_SIZE], *bytes = content(i, 20000);
    if (store_put(store, bytes, 20000, key, &err) ||
        store_put_record(store, &(struct store_record){named("shared"), &i, sizeof i, NULL}, &err))
      __atomic_fetch_add((int *)failures, 1, __ATOMIC_RELAXED);
    free(bytes);
  }
  return NULL;
}

static void in_threads(void *(*work)(void *)) {
  pthread_t threads[THREADS];
  int failures = 0;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, work, &failures), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  assert_int_equal(failures, 0);
}

static void no_increment_of_eight_threads_is_lost(void **state) {
  char expected[32];
  (void)state;
  in_threads(increment);
  snprintf(expected, sizeof expected, "%d", THREADS * INCREMENTS);
  assert_text(store, named("counter"), expected);
}

static void puts_of_the_same_names_at_a_time_all_succeed(void **state) {
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  (void)state;
  in_threads(put_shared);
  for (uint64_t i = 0; i < SHARED; i++) {
    char key[STORE_KEY_SIZE], *bytes = content(i, 20000);
    sha256_hex(bytes, 20000, key);
    forget_later(key);
    assert_holds(store, key, bytes, 20000);
    free(bytes);
  }
  assert_int_equal(store_get_record(store, named("shared"), &data, &size, &err), 0);
  assert_int_equal(size, sizeof(uint64_t));
  free(data);
}

static bool is_done;

static void *write_on(void *failures) {
  for (int i = 0; !__atomic_load_n(&is_done, __ATOMIC_RELAXED); i++) {
    char name[32];
    struct err err = ERR_NONE;
    snprintf(name, sizeof name, "new/%d", i % 50);
    if (i % 100 < 50 ? write_text(named(name), "x", NULL, &err)
                     : store_delete_record(store, named(name), NULL, &err))
      __atomic_fetch_add((int *)failures, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

static void lists_stay_whole_while_others_write(void **state) {
  pthread_t writer;
  int failures = 0;
  (void)state;
  for (int i = 0; i < 20; i++) {
    char name[32];
    snprintf(name, sizeof name, "old/%02d", i);
    put_text(named(name), "x");
  }
  __atomic_store_n(&is_done, false, __ATOMIC_RELAXED);
  assert_int_equal(pthread_create(&writer, NULL, write_on, &failures), 0);
  for (int round = 0; round < 30; round++) {
    struct store_names names;
    struct err err = ERR_NONE;
    int n_old = 0;
    assert_int_equal(store_list_records(store, prefix, &names, &err), 0);
    for (int i = 0; i < names.count; i++) {
      n_old += strstr(names.items[i], "/old/") != NULL;
      assert_true(i == 0 || strcmp(names.items[i - 1], names.items[i]) < 0);
    }
    assert_int_equal(n_old, 20);
    store_names_fini(&names);
  }
  __atomic_store_n(&is_done, true, __ATOMIC_RELAXED);
  pthread_join(writer, NULL);
  assert_int_equal(failures, 0);
}

static void two_handles_see_each_other(void **state) {
  char key[STORE_KEY_SIZE], *bytes = content(0, 5000);
  struct err err = ERR_NONE;
  struct store_record guard;
  struct store *second;
  (void)state;
  assert_int_equal(store_open(url, &second, &err), 0);
  put(bytes, 5000, key);
  assert_holds(second, key, bytes, 5000);
  put_text(named("a"), "1");
  assert_text(second, named("a"), "1");
  assert_int_equal(store_put_record(second, &(struct store_record){named("a"), "2", 1, NULL}, &err), 0);
  guard = is_text(named("a"), "1");
  assert_int_equal(write_text(named("a"), "3", &guard, &err), ERR_STALE);
  assert_text(store, named("a"), "2");
  store_close(second);
  assert_holds(store, key, bytes, 5000);
  free(bytes);
}

static void what_was_written_is_there_after_reopening(void **state) {
  char key[STORE_KEY_SIZE], *bytes = content(0, 5000);
  struct err err = ERR_NONE;
  (void)state;
  put(bytes, 5000, key);
  put_text(named("a"), "1");
  store_close(store);
  assert_int_equal(store_open(url, &store, &err), 0);
  assert_holds(store, key, bytes, 5000);
  assert_text(store, named("a"), "1");
  free(bytes);
}

static void a_sweep_leaves_what_is_whole(void **state) {
  char key[STORE_KEY_SIZE], *bytes = content(0, 5000);
  struct err err = ERR_NONE;
  (void)state;
  put(bytes, 5000, key);
  put_text(named("a/b"), "1");
  assert_int_equal(store_sweep(store, 3600, &err), 0);
  assert_holds(store, key, bytes, 5000);
  assert_text(store, named("a/b"), "1");
  free(bytes);
}

int main(void) {
  float_setting_apply();
  char *kinds[] = {"memory", "file", "given"};
  int failed = 0;
  for (int i = 0; i < (getenv("WEIR_TEST_STORE") ? 3 : 2); i++) {
#define ON(test)                                                                                             \
  { #test, test, setup, teardown, kinds[i] }
    const struct CMUnitTest tests[] = {
        ON(a_block_reads_back_by_its_hash),
        ON(an_empty_block_is_a_block),
        ON(a_block_of_4_mib_reads_back),
        ON(a_block_is_its_parts_one_after_the_other),
        ON(many_blocks_go_in_batches_and_what_was_there_is_not_written),
        ON(the_same_block_twice_in_a_batch_is_one),
        ON(a_batch_reads_in_order_and_a_missing_one_is_named),
        ON(a_deleted_block_is_gone_and_can_come_back),
        ON(every_block_is_listed_once_with_its_size),
        ON(blocks_can_be_deleted_while_they_are_listed),
        ON(a_record_is_replaced_whole),
        ON(a_record_holds_any_bytes),
        ON(a_deleted_record_is_gone),
        ON(what_is_missing_is_not_found_by_name),
        ON(names_that_could_escape_are_refused),
        ON(names_are_listed_by_any_prefix_ascending),
        ON(a_deleted_name_is_not_listed),
        ON(a_prefix_of_other_letters_is_refused),
        ON(a_guard_of_absence_lets_one_writer_through),
        ON(a_guard_holds_for_the_same_bytes_only),
        ON(all_of_several_guards_must_hold),
        ON(no_increment_of_eight_threads_is_lost),
        ON(puts_of_the_same_names_at_a_time_all_succeed),
        ON(lists_stay_whole_while_others_write),
        ON(a_sweep_leaves_what_is_whole),
        ON(two_handles_see_each_other),
        ON(what_was_written_is_there_after_reopening),
    };
#undef ON
    /* The last ones open a store twice, and each memory: store is another. */
    failed +=
        _cmocka_run_group_tests(kinds[i], tests, sizeof tests / sizeof *tests - (i == 0 ? 2 : 0), NULL, NULL);
  }
  return failed;
}

/* What every store does with blocks: they are read, found, listed and deleted by their hashes. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/sha256.h"
#include "tests/support/storage/store_suite.h"

static void a_block_reads_back_by_its_hash(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE], expected[STORE_KEY_SIZE], *bytes = suite_content(s, 0, 1000);
  bytes[3] = 0;
  suite_put(s, bytes, 1000, key);
  sha256_hex(bytes, 1000, expected);
  assert_string_equal(key, expected);
  assert_block(s->store, key, bytes, 1000);
  free(bytes);
}

static void an_empty_block_is_a_block(void **state) {
  struct store_suite *s = *state;
  struct err err = ERR_NONE;
  char key[STORE_KEY_SIZE];
  assert_int_equal(store_put(s->store, "", 0, key, &err), 0);
  assert_true(suite_has(s, key));
  assert_block(s->store, key, "", 0);
}

static void a_block_of_4_mib_reads_back(void **state) {
  struct store_suite *s = *state;
  size_t size = 4 << 20;
  char key[STORE_KEY_SIZE], *bytes = suite_content(s, 0, size);
  suite_put(s, bytes, size, key);
  assert_block(s->store, key, bytes, size);
  free(bytes);
}

static void a_block_is_its_parts_one_after_the_other(void **state) {
  struct store_suite *s = *state;
  char *bytes = suite_content(s, 0, 70000), expected[STORE_KEY_SIZE];
  struct store_block block = {.parts = {{bytes, 6}, {bytes + 6, 69994}}, .n_parts = 2};
  struct store_block whole = {.parts = {{bytes, 70000}, {NULL, 0}}, .n_parts = 2};
  struct store_block none = {.n_parts = 0};
  struct err err = ERR_NONE;
  uint64_t written = 5;
  assert_int_equal(store_put_blocks(s->store, &block, 1, &written, &err), 0);
  suite_delete_later(s, block.sha256);
  sha256_hex(bytes, 70000, expected);
  assert_string_equal(block.sha256, expected);
  assert_false(block.was_there);
  assert_int_equal(written, 5 + 70000);
  assert_block(s->store, block.sha256, bytes, 70000);
  assert_int_equal(store_put_blocks(s->store, &whole, 1, &written, &err), 0);
  assert_string_equal(whole.sha256, expected);
  assert_true(whole.was_there);
  assert_int_equal(written, 5 + 70000);
  assert_int_equal(store_put_blocks(s->store, &none, 1, &written, &err), 0);
  assert_block(s->store, none.sha256, "", 0);
  free(bytes);
}

enum { MANY = 150, MANY_SIZE = 3000 };

static void many_blocks_go_in_batches_and_what_was_there_is_not_written(void **state) {
  struct store_suite *s = *state;
  struct store_block blocks[MANY] = {0};
  const char *keys[MANY];
  bool is_there[MANY];
  char first[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  uint64_t written = 0;
  suite_put_content(s, 7, MANY_SIZE, first);
  for (int i = 0; i < MANY; i++)
    blocks[i] =
        (struct store_block){.parts = {{suite_content(s, (uint64_t)i, MANY_SIZE), MANY_SIZE}}, .n_parts = 1};
  assert_int_equal(store_put_blocks(s->store, blocks, MANY, &written, &err), 0);
  assert_int_equal(written, (MANY - 1) * MANY_SIZE);
  for (int i = 0; i < MANY; i++) {
    suite_delete_later(s, blocks[i].sha256);
    assert_int_equal(blocks[i].was_there, i == 7);
    keys[i] = blocks[i].sha256;
  }
  assert_int_equal(store_has_blocks(s->store, keys, MANY, is_there, &err), 0);
  for (int i = 0; i < MANY; i++) {
    assert_true(is_there[i]);
    assert_block(s->store, keys[i], blocks[i].parts[0].iov_base, MANY_SIZE);
    free(blocks[i].parts[0].iov_base);
  }
  assert_int_equal(store_delete_blocks(s->store, keys, MANY, &err), 0);
  assert_int_equal(store_has_blocks(s->store, keys, MANY, is_there, &err), 0);
  for (int i = 0; i < MANY; i++)
    assert_false(is_there[i]);
}

static void the_same_block_twice_in_a_batch_is_one(void **state) {
  struct store_suite *s = *state;
  char *bytes = suite_content(s, 0, 500);
  struct store_block blocks[6] = {0};
  struct err err = ERR_NONE;
  for (int i = 0; i < 6; i++)
    blocks[i] = (struct store_block){.parts = {{bytes, 500}}, .n_parts = 1};
  assert_int_equal(store_put_blocks(s->store, blocks, 6, NULL, &err), 0);
  suite_delete_later(s, blocks[0].sha256);
  assert_block(s->store, blocks[5].sha256, bytes, 500);
  free(bytes);
}

static void a_batch_reads_in_order_and_a_missing_one_is_named(void **state) {
  struct store_suite *s = *state;
  enum { N = STORE_BATCH_MAX };
  char found[N][STORE_KEY_SIZE];
  struct store_read reads[N];
  struct err err = ERR_NONE;
  for (int i = 0; i < N; i++) {
    suite_put_content(s, (uint64_t)i, 100 + (size_t)i, found[i]);
    reads[i].key = found[i];
  }
  assert_int_equal(store_get_blocks(s->store, reads, N, &err), 0);
  for (int i = 0; i < N; i++) {
    char *bytes = suite_content(s, (uint64_t)i, 100 + (size_t)i);
    assert_int_equal(reads[i].size, 100 + i);
    assert_memory_equal(reads[i].data, bytes, reads[i].size);
    free(bytes);
    free(reads[i].data);
  }
  sha256_hex(&s->salt, sizeof s->salt, found[40]);
  assert_int_equal(store_get_blocks(s->store, reads, N, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, found[40]));
  for (int i = 0; i < N; i++)
    assert_null(reads[i].data);
}

static void a_deleted_block_is_gone_and_can_come_back(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE];
  const char *keys[2] = {key, key};
  struct err err = ERR_NONE;
  suite_put_content(s, 0, 1000, key);
  assert_int_equal(store_delete_blocks(s->store, keys, 1, &err), 0);
  assert_false(suite_has(s, key));
  assert_int_equal(store_delete_blocks(s->store, keys, 2, &err), 0);
  suite_put_content(s, 0, 1000, key);
  assert_true(suite_has(s, key));
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
  struct store_suite *s = *state;
  struct seen seen = {.n = 20};
  struct err err = ERR_NONE;
  int calls = 0;
  for (int i = 0; i < seen.n; i++)
    suite_put_content(s, (uint64_t)i, 10 + (size_t)i, seen.keys[i]);
  suite_put_text(s, suite_name(s, "not-a-block"), "x");
  assert_int_equal(store_list_blocks(s->store, see, &seen, &err), 0);
  for (int i = 0; i < seen.n; i++)
    assert_int_equal(seen.counts[i], 1);
  assert_int_equal(store_list_blocks(s->store, see_one, &calls, &err), 77);
  assert_int_equal(calls, 1);
}

struct deletion {
  struct store_suite *suite;
  int count;
};

static int delete_seen(void *user, const char *key, uint64_t size_bytes) {
  struct deletion *deletion = user;
  struct store_suite *s = deletion->suite;
  struct err err = ERR_NONE;
  (void)size_bytes;
  for (int i = 0; i < s->n_keys_written; i++)
    if (strcmp(s->keys_written[i], key) == 0) {
      deletion->count++;
      return store_delete_blocks(s->store, &key, 1, &err);
    }
  return 0;
}

static void blocks_can_be_deleted_while_they_are_listed(void **state) {
  struct store_suite *s = *state;
  char key[STORE_KEY_SIZE];
  struct err err = ERR_NONE;
  struct deletion deletion = {.suite = s};
  for (uint64_t i = 0; i < 100; i++)
    suite_put_content(s, i, 64, key);
  assert_int_equal(store_list_blocks(s->store, delete_seen, &deletion, &err), 0);
  assert_int_equal(deletion.count, 100);
  for (int i = 0; i < s->n_keys_written; i++)
    assert_false(suite_has(s, s->keys_written[i]));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      ON_STORE(a_block_reads_back_by_its_hash),
      ON_STORE(an_empty_block_is_a_block),
      ON_STORE(a_block_of_4_mib_reads_back),
      ON_STORE(a_block_is_its_parts_one_after_the_other),
      ON_STORE(many_blocks_go_in_batches_and_what_was_there_is_not_written),
      ON_STORE(the_same_block_twice_in_a_batch_is_one),
      ON_STORE(a_batch_reads_in_order_and_a_missing_one_is_named),
      ON_STORE(a_deleted_block_is_gone_and_can_come_back),
      ON_STORE(every_block_is_listed_once_with_its_size),
      ON_STORE(blocks_can_be_deleted_while_they_are_listed),
  };
  return store_suite_run(tests, sizeof tests / sizeof *tests, 0);
}

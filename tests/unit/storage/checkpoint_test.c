/* Checkpoints and runs as records and blocks of a store: what is committed, read back, found, refused as
 * damaged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/sha256.h"
#include "model/model.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/storage/checkpoint_store.h"

static void a_committed_checkpoint_reads_back_as_weights(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  struct weights_stream *weights;
  Weir__Manifest *manifest;
  struct buffer *flat;
  const float *data;
  size_t elems, at = 0;
  char sha256[65], expected[65];
  commit_checkpoint(f, "tiny-1", 10);
  manifest = read_manifest(f, "tiny-1", 10);
  assert_int_equal(checkpoint_flat_weights(f->store, manifest, false, &flat, &err), 0);
  assert_true(flat->size_bytes >= TINY_PARAMS * sizeof(float));
  for (size_t i = 0; i < TINY_PARAMS; i++)
    assert_true(((float *)flat->data)[i] == tiny_weight(10, i));
  sha256_hex(flat->data, TINY_PARAMS * sizeof(float), expected); /* it has no statistics */
  assert_int_equal(checkpoint_weights_sha256(f->store, manifest, sha256, &err), 0);
  assert_string_equal(sha256, expected);
  assert_int_equal(weights_stream_open(f->store, manifest, false, &weights, &err), 0);
  assert_int_equal(weights_stream_elems(weights) * sizeof(float), flat->size_bytes);
  while (weights_stream_next(weights, &data, &elems, &err) == 0 && elems > 0) {
    assert_memory_equal((float *)flat->data + at, data, elems * sizeof(float));
    at += elems;
  }
  assert_int_equal(at * sizeof(float), flat->size_bytes);
  weights_stream_close(weights);
  buffer_put(flat);
  message_free(manifest);
}

static void the_average_is_what_a_block_holds_last(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  Weir__Manifest *manifest;
  struct buffer *flat;
  commit_checkpoint(f, "tiny-1", 10);
  manifest = read_manifest(f, "tiny-1", 10);
  assert_int_equal(checkpoint_flat_weights(f->store, manifest, true, &flat, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "run 'tiny-1' keeps no average of its weights: its spec has no train.average");
  manifest->spec->train->average = mem_new(sizeof *manifest->spec->train->average);
  weir__average_spec__init(manifest->spec->train->average);
  assert_int_equal(checkpoint_flat_weights(f->store, manifest, true, &flat, &err), 0);
  for (size_t i = 0; i < TINY_PARAMS; i++)
    assert_true(((float *)flat->data)[i] == -tiny_weight(10, i));
  buffer_put(flat);
  message_free(manifest);
}

/* Such as of a run whose spec was changed in the store. */
static void a_block_without_its_average_is_damage(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  Weir__Manifest *manifest;
  struct buffer *flat;
  float values[TINY_PARAMS] = {0};
  char key[STORE_KEY_SIZE];
  commit_checkpoint(f, "tiny-1", 10);
  manifest = read_manifest(f, "tiny-1", 10);
  manifest->spec->train->average = mem_new(sizeof *manifest->spec->train->average);
  weir__average_spec__init(manifest->spec->train->average);
  assert_int_equal(store_put(f->store, values, sizeof values, key, &err), 0);
  strcpy(manifest->blocks[0]->sha256, key);
  manifest->blocks[0]->bytes = sizeof values;
  assert_int_equal(checkpoint_flat_weights(f->store, manifest, true, &flat, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, "block 0 of the checkpoint holds no average"));
  message_free(manifest);
}

static void what_is_told_of_a_checkpoint_is_of_its_own_version(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 10);
  Weir__CheckpointInfo info;
  manifest->accuracy = 0.5;
  manifest->eval_loss = 0.25;
  manifest->eval_step = 5;
  checkpoint_info(manifest, &info);
  assert_int_equal(info.blocks, TINY_BLOCKS);
  assert_int_equal(info.bytes, manifest->blocks[0]->bytes + manifest->blocks[1]->bytes);
  assert_true(isnan(info.accuracy) && isnan(info.eval_loss));
  manifest->eval_step = 10;
  checkpoint_info(manifest, &info);
  assert_true(info.accuracy == 0.5 && info.eval_loss == 0.25);
  message_free(manifest);
}

static void a_checkpoint_that_lacks_a_block_is_not_committed(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 10);
  const char *key = manifest->blocks[1]->sha256;
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  assert_int_equal(store_delete_blocks(f->store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_commit(f->store, f->refs, manifest, NULL, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "block 1"));
  assert_int_equal(checkpoint_list(f->store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 0);
  free(steps);
  message_free(manifest);
}

static void a_commit_whose_guard_does_not_hold_changes_nothing(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 10);
  struct store_record guard = {.name = "coordinator/epoch", .data = "7", .size = 1};
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"coordinator/epoch", "8", 1, NULL}, &err), 0);
  assert_int_equal(checkpoint_commit(f->store, f->refs, manifest, &guard, &err), ERR_STALE);
  assert_int_equal(checkpoint_list(f->store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 0);
  free(steps);
  message_free(manifest);
}

static void checkpoints_are_listed_by_step(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  commit_checkpoint(f, "tiny-1", 20);
  commit_checkpoint(f, "tiny-1", 5);
  commit_checkpoint(f, "tiny-10", 7);
  assert_int_equal(checkpoint_list(f->store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 2);
  assert_int_equal(steps[0], 5);
  assert_int_equal(steps[1], 20);
  free(steps);
}

static void expect_corrupt(struct checkpoint_store *f, Weir__Manifest *manifest, const char *why) {
  char *name = checkpoint_name("tiny-1", 10);
  Weir__Manifest *read;
  struct err err = ERR_NONE;
  assert_int_equal(checkpoint_write_record(f->store, name, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_read(f->store, name, &read, &err), ERR_CORRUPT);
  assert_null(read);
  assert_non_null(strstr(err.text, name));
  if (!strstr(err.text, why))
    fail_msg("'%s' does not say '%s'", err.text, why);
  free(name);
}

static void a_damaged_manifest_is_refused_with_its_reason(void **state) {
  struct checkpoint_store *f = *state;
  Weir__Manifest *manifest = tiny_manifest(f->store, "tiny-1", 10);
  Weir__RunSpec *spec = manifest->spec;
  Weir__Plan *plan = manifest->plan;
  char *run = manifest->run, *model = manifest->model_sha256, *key = manifest->blocks[0]->sha256;
  struct err err = ERR_NONE;
  char *name = checkpoint_name("tiny-1", 10);
  void *none;
  manifest->run = "tiny-2";
  expect_corrupt(f, manifest, "another");
  manifest->run = run;
  manifest->step = 11;
  expect_corrupt(f, manifest, "another");
  manifest->step = 10;
  manifest->spec = NULL;
  expect_corrupt(f, manifest, "spec");
  manifest->spec = spec;
  spec->train->batch = 0;
  expect_corrupt(f, manifest, "train.batch");
  spec->train->batch = 8;
  manifest->plan = NULL;
  expect_corrupt(f, manifest, "plan");
  manifest->plan = plan;
  plan->steps = 9;
  expect_corrupt(f, manifest, "plan");
  plan->steps = TINY_STEPS;
  manifest->model_sha256 = "x";
  expect_corrupt(f, manifest, "model");
  manifest->model_sha256 = model;
  manifest->blocks[1]->block = 2;
  expect_corrupt(f, manifest, "gaps");
  manifest->blocks[1]->block = 1;
  manifest->blocks[0]->sha256 = "y";
  expect_corrupt(f, manifest, "gaps");
  manifest->blocks[0]->sha256 = key;
  manifest->n_blocks = 0;
  expect_corrupt(f, manifest, "no blocks");
  manifest->n_blocks = TINY_BLOCKS;
  assert_int_equal(store_put_record(f->store, &(struct store_record){name, "\x0a\xff", 2, NULL}, &err), 0);
  assert_int_equal(checkpoint_read(f->store, name, (Weir__Manifest **)&none, &err), ERR_CORRUPT);
  assert_int_equal(checkpoint_read(f->store, "runs/tiny-1/checkpoints/00000000000000000003",
                                   (Weir__Manifest **)&none, &err),
                   ERR_NOT_FOUND);
  free(name);
  message_free(manifest);
}

struct lines {
  char text[1024];
};

static void keep_line(void *user, const char *line) {
  struct lines *lines = user;
  size_t length = strlen(lines->text);
  snprintf(lines->text + length, sizeof lines->text - length, "%s\n", line);
}

static void verify_names_every_damaged_block_and_hashes_whole_ones(void **state) {
  struct checkpoint_store *f = *state;
  struct lines lines = {""};
  struct checkpoint_damage damage = {.each = keep_line, .user = &lines};
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  char expected[65];
  const char *key;
  commit_checkpoint(f, "tiny-1", 10);
  manifest = read_manifest(f, "tiny-1", 10);
  assert_int_equal(checkpoint_weights_sha256(f->store, manifest, expected, &err), 0);
  assert_int_equal(checkpoint_verify(f->store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 0);
  assert_int_equal(damage.blocks, TINY_BLOCKS);
  assert_string_equal(damage.sha256, expected);
  manifest->blocks[1]->bytes++;
  key = manifest->blocks[0]->sha256;
  assert_int_equal(store_delete_blocks(f->store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_verify(f->store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 2);
  assert_string_equal(damage.sha256, "");
  assert_non_null(strstr(lines.text, "block 0: store: no such block"));
  assert_non_null(strstr(lines.text, "block 1 of the checkpoint has"));
  key = manifest->model_sha256;
  assert_int_equal(store_delete_blocks(f->store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_verify(f->store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 3);
  assert_non_null(strstr(lines.text, "the model: store: no such block"));
  message_free(manifest);
}

static void a_run_is_found_by_a_prefix_that_is_its_alone(void **state) {
  struct checkpoint_store *f = *state;
  struct err err = ERR_NONE;
  Weir__RunRecord *record;
  put_run(f, "tiny-a1", "");
  put_run(f, "tiny-a1b", "");
  put_run(f, "tiny-b2", "");
  assert_int_equal(checkpoint_find_run(f->store, "tiny-b", &record, &err), 0);
  assert_string_equal(record->run, "tiny-b2");
  message_free(record);
  assert_int_equal(checkpoint_find_run(f->store, "tiny-a1", &record, &err),
                   0); /* whole, though a prefix too */
  assert_string_equal(record->run, "tiny-a1");
  message_free(record);
  assert_int_equal(checkpoint_find_run(f->store, "tiny", &record, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "tiny-a1b, tiny-b2"));
  assert_int_equal(checkpoint_find_run(f->store, "nobody", &record, &err), ERR_NOT_FOUND);
  assert_int_equal(checkpoint_find_run(f->store, "../x", &record, &err), ERR_NOT_FOUND);
  assert_int_equal(checkpoint_find_run(f->store, "", &record, &err), ERR_INVALID);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_store_open, checkpoint_store_close)
  const struct CMUnitTest tests[] = {
      TEST(a_committed_checkpoint_reads_back_as_weights),
      TEST(the_average_is_what_a_block_holds_last),
      TEST(a_block_without_its_average_is_damage),
      TEST(what_is_told_of_a_checkpoint_is_of_its_own_version),
      TEST(a_checkpoint_that_lacks_a_block_is_not_committed),
      TEST(a_commit_whose_guard_does_not_hold_changes_nothing),
      TEST(checkpoints_are_listed_by_step),
      TEST(a_damaged_manifest_is_refused_with_its_reason),
      TEST(verify_names_every_damaged_block_and_hashes_whole_ones),
      TEST(a_run_is_found_by_a_prefix_that_is_its_alone),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Checkpoints and runs as records and blocks of a store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "tests/support/checkpoint_fixture.h"
#include "tests/support/flaky_store.h"

static struct store *store;
static struct block_refs *refs;

static int setup(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(store_open("memory://", &store, &err), 0);
  assert_int_equal(block_refs_read(store, &refs, &err), 0);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  block_refs_free(refs);
  store_close(store);
  return 0;
}

static void commit(const char *run, uint64_t step) {
  Weir__Manifest *manifest = tiny_manifest(store, run, step);
  struct err err = ERR_NONE;
  if (checkpoint_commit(store, refs, manifest, NULL, &err))
    fail_msg("%s", err.text);
  message_free(manifest);
}

static Weir__Manifest *read_manifest(const char *run, uint64_t step) {
  char *name = checkpoint_name(run, step);
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  if (checkpoint_read(store, name, &manifest, &err))
    fail_msg("%s", err.text);
  free(name);
  return manifest;
}

static void put_run(const char *run, const char *model_sha256) {
  Weir__RunRecord record = WEIR__RUN_RECORD__INIT;
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, "run");
  record.run = (char *)run;
  record.model_sha256 = (char *)model_sha256;
  assert_int_equal(checkpoint_write_record(store, name, &record, NULL, &err), 0);
  block_refs_add_model(refs, model_sha256);
  free(name);
}

static int count_one(void *user, const char *key, uint64_t size) {
  (void)key, (void)size;
  ++*(int *)user;
  return 0;
}

static int count_blocks(void) {
  struct err err = ERR_NONE;
  int count = 0;
  assert_int_equal(store_list_blocks(store, count_one, &count, &err), 0);
  return count;
}

static bool has_block(const char *key) {
  struct err err = ERR_NONE;
  bool has;
  assert_int_equal(store_has_blocks(store, &key, 1, &has, &err), 0);
  return has;
}

static void a_committed_checkpoint_reads_back_as_weights(void **state) {
  struct err err = ERR_NONE;
  struct checkpoint_weights weights;
  Weir__Manifest *manifest;
  struct buffer *flat;
  char sha256[65], expected[65];
  (void)state;
  commit("tiny-1", 10);
  manifest = read_manifest("tiny-1", 10);
  assert_int_equal(checkpoint_weights_read(store, manifest, &weights, &err), 0);
  for (size_t i = 0; i < TINY_PARAMS; i++)
    assert_true(weights.params[i] == tiny_weight(10, i));
  model_weights_sha256(weights.model, weights.params, weights.state, expected);
  assert_int_equal(checkpoint_weights_sha256(store, manifest, sha256, &err), 0);
  assert_string_equal(sha256, expected);
  assert_int_equal(checkpoint_flat_weights(store, manifest, false, &flat, &err), 0);
  assert_int_equal(flat->size_bytes, (TINY_PARAMS + weights.model->row_elems - METRICS) * sizeof(float));
  assert_memory_equal(flat->data, weights.params, TINY_PARAMS * sizeof(float));
  buffer_put(flat);
  checkpoint_weights_fini(&weights);
  message_free(manifest);
}

static void the_average_is_what_a_block_holds_last(void **state) {
  struct err err = ERR_NONE;
  Weir__Manifest *manifest;
  struct buffer *flat;
  (void)state;
  commit("tiny-1", 10);
  manifest = read_manifest("tiny-1", 10);
  assert_int_equal(checkpoint_flat_weights(store, manifest, true, &flat, &err), ERR_INVALID);
  assert_string_equal(err.text,
                      "run 'tiny-1' keeps no average of its weights: its spec has no train.average");
  manifest->spec->train->average = mem_new(sizeof *manifest->spec->train->average);
  weir__average_spec__init(manifest->spec->train->average);
  assert_int_equal(checkpoint_flat_weights(store, manifest, true, &flat, &err), 0);
  for (size_t i = 0; i < TINY_PARAMS; i++)
    assert_true(((float *)flat->data)[i] == -tiny_weight(10, i));
  buffer_put(flat);
  message_free(manifest);
}

/* Such as of a run whose spec was changed in the store. */
static void a_block_without_its_average_is_damage(void **state) {
  struct err err = ERR_NONE;
  Weir__Manifest *manifest;
  struct buffer *flat;
  float values[TINY_PARAMS] = {0};
  char key[STORE_KEY_SIZE];
  (void)state;
  commit("tiny-1", 10);
  manifest = read_manifest("tiny-1", 10);
  manifest->spec->train->average = mem_new(sizeof *manifest->spec->train->average);
  weir__average_spec__init(manifest->spec->train->average);
  assert_int_equal(store_put(store, values, sizeof values, key, &err), 0);
  strcpy(manifest->blocks[0]->sha256, key);
  manifest->blocks[0]->bytes = sizeof values;
  assert_int_equal(checkpoint_flat_weights(store, manifest, true, &flat, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, "block 0 of the checkpoint holds no average"));
  message_free(manifest);
}

static void what_is_told_of_a_checkpoint_is_of_its_own_version(void **state) {
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 10);
  Weir__CheckpointInfo info;
  (void)state;
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
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 10);
  const char *key = manifest->blocks[1]->sha256;
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  (void)state;
  assert_int_equal(store_delete_blocks(store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_commit(store, refs, manifest, NULL, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "block 1"));
  assert_int_equal(checkpoint_list(store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 0);
  free(steps);
  message_free(manifest);
}

static void a_commit_whose_guard_does_not_hold_changes_nothing(void **state) {
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 10);
  struct store_record guard = {.name = "coordinator/epoch", .data = "7", .size = 1};
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  (void)state;
  assert_int_equal(store_put_record(store, &(struct store_record){"coordinator/epoch", "8", 1, NULL}, &err),
                   0);
  assert_int_equal(checkpoint_commit(store, refs, manifest, &guard, &err), ERR_STALE);
  assert_int_equal(checkpoint_list(store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 0);
  free(steps);
  message_free(manifest);
}

static void checkpoints_are_listed_by_step(void **state) {
  struct err err = ERR_NONE;
  uint64_t *steps;
  int n;
  (void)state;
  commit("tiny-1", 20);
  commit("tiny-1", 5);
  commit("tiny-10", 7);
  assert_int_equal(checkpoint_list(store, "tiny-1", &steps, &n, &err), 0);
  assert_int_equal(n, 2);
  assert_int_equal(steps[0], 5);
  assert_int_equal(steps[1], 20);
  free(steps);
}

static void expect_corrupt(Weir__Manifest *manifest, const char *why) {
  char *name = checkpoint_name("tiny-1", 10);
  Weir__Manifest *read;
  struct err err = ERR_NONE;
  assert_int_equal(checkpoint_write_record(store, name, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_read(store, name, &read, &err), ERR_CORRUPT);
  assert_null(read);
  assert_non_null(strstr(err.text, name));
  if (!strstr(err.text, why))
    fail_msg("'%s' does not say '%s'", err.text, why);
  free(name);
}

static void a_damaged_manifest_is_refused_with_its_reason(void **state) {
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 10);
  Weir__RunSpec *spec = manifest->spec;
  Weir__Plan *plan = manifest->plan;
  char *run = manifest->run, *model = manifest->model_sha256, *key = manifest->blocks[0]->sha256;
  struct err err = ERR_NONE;
  char *name = checkpoint_name("tiny-1", 10);
  void *none;
  (void)state;
  manifest->run = "tiny-2";
  expect_corrupt(manifest, "another");
  manifest->run = run;
  manifest->step = 11;
  expect_corrupt(manifest, "another");
  manifest->step = 10;
  manifest->spec = NULL;
  expect_corrupt(manifest, "spec");
  manifest->spec = spec;
  spec->train->batch = 0;
  expect_corrupt(manifest, "train.batch");
  spec->train->batch = 8;
  manifest->plan = NULL;
  expect_corrupt(manifest, "plan");
  manifest->plan = plan;
  plan->steps = 9;
  expect_corrupt(manifest, "plan");
  plan->steps = TINY_STEPS;
  manifest->model_sha256 = "x";
  expect_corrupt(manifest, "model");
  manifest->model_sha256 = model;
  manifest->blocks[1]->block = 2;
  expect_corrupt(manifest, "gaps");
  manifest->blocks[1]->block = 1;
  manifest->blocks[0]->sha256 = "y";
  expect_corrupt(manifest, "gaps");
  manifest->blocks[0]->sha256 = key;
  manifest->n_blocks = 0;
  expect_corrupt(manifest, "no blocks");
  manifest->n_blocks = TINY_BLOCKS;
  assert_int_equal(store_put_record(store, &(struct store_record){name, "\x0a\xff", 2, NULL}, &err), 0);
  assert_int_equal(checkpoint_read(store, name, (Weir__Manifest **)&none, &err), ERR_CORRUPT);
  assert_int_equal(
      checkpoint_read(store, "runs/tiny-1/checkpoints/00000000000000000003", (Weir__Manifest **)&none, &err),
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
  struct lines lines = {""};
  struct checkpoint_damage damage = {.each = keep_line, .user = &lines};
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  char expected[65];
  const char *key;
  (void)state;
  commit("tiny-1", 10);
  manifest = read_manifest("tiny-1", 10);
  assert_int_equal(checkpoint_weights_sha256(store, manifest, expected, &err), 0);
  assert_int_equal(checkpoint_verify(store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 0);
  assert_int_equal(damage.blocks, TINY_BLOCKS);
  assert_string_equal(damage.sha256, expected);
  manifest->blocks[1]->bytes++;
  key = manifest->blocks[0]->sha256;
  assert_int_equal(store_delete_blocks(store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_verify(store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 2);
  assert_string_equal(damage.sha256, "");
  assert_non_null(strstr(lines.text, "block 0: store: no such block"));
  assert_non_null(strstr(lines.text, "block 1 of the checkpoint has"));
  key = manifest->model_sha256;
  assert_int_equal(store_delete_blocks(store, &key, 1, &err), 0);
  assert_int_equal(checkpoint_verify(store, manifest, &damage, &err), 0);
  assert_int_equal(damage.n_damaged, 3);
  assert_non_null(strstr(lines.text, "the model: store: no such block"));
  message_free(manifest);
}

static void a_deleted_checkpoint_takes_only_the_blocks_that_nobody_else_has(void **state) {
  char *name = checkpoint_name("tiny-1", 5), *parameters, *statistics;
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  (void)state;
  commit("tiny-1", 5);
  commit("tiny-1", 10);
  assert_int_equal(count_blocks(), 1 + 2 + 1); /* the model, two of parameters, one of statistics */
  manifest = read_manifest("tiny-1", 5);
  parameters = manifest->blocks[0]->sha256;
  statistics = manifest->blocks[1]->sha256;
  assert_int_equal(checkpoint_delete(store, refs, name, NULL, &err), 0);
  assert_false(has_block(parameters));
  assert_true(has_block(statistics));
  message_free(manifest);
  manifest = read_manifest("tiny-1", 10);
  assert_int_equal(checkpoint_is_whole(store, manifest, &err), 0);
  assert_int_equal(checkpoint_delete(store, refs, name, NULL, &err), 0); /* and again: nothing */
  assert_int_equal(checkpoint_is_whole(store, manifest, &err), 0);
  message_free(manifest);
  free(name);
}

static void a_checkpoint_committed_anew_replaces_the_one_before(void **state) {
  Weir__Manifest *old, *manifest;
  struct err err = ERR_NONE;
  (void)state;
  commit("tiny-1", 5);
  old = read_manifest("tiny-1", 5);
  manifest = tiny_manifest(store, "tiny-1", 6);
  manifest->step = 5; /* as after a roll-back in a run that is not deterministic */
  assert_int_equal(checkpoint_commit(store, refs, manifest, NULL, &err), 0);
  assert_false(has_block(old->blocks[0]->sha256));
  assert_int_equal(checkpoint_is_whole(store, manifest, &err), 0);
  message_free(old);
  message_free(manifest);
}

static void a_commit_whose_answer_was_lost_keeps_its_blocks_when_it_is_made_again(void **state) {
  struct store *flaky = flaky_store_new(store);
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 5);
  struct err err = ERR_NONE;
  (void)state;
  ((struct flaky_store *)flaky)->loses_answer = true;
  assert_int_equal(checkpoint_commit(flaky, refs, manifest, NULL, &err), ERR_UNAVAILABLE);
  assert_int_equal(checkpoint_commit(flaky, refs, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_is_whole(store, manifest, &err), 0);
  message_free(manifest);
  store_close(flaky);
}

static void
a_commit_that_lands_after_the_references_were_read_keeps_its_blocks_when_it_is_made_again(void **state) {
  Weir__Manifest *manifest = tiny_manifest(store, "tiny-1", 5);
  char *name = checkpoint_name("tiny-1", 5);
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(checkpoint_write_record(store, name, manifest, NULL, &err), 0); /* not counted */
  assert_int_equal(checkpoint_commit(store, refs, manifest, NULL, &err), 0);
  assert_int_equal(checkpoint_is_whole(store, manifest, &err), 0);
  assert_int_equal(checkpoint_delete(store, refs, name, NULL, &err), 0);
  assert_int_equal(count_blocks(), 0); /* and they were counted once */
  message_free(manifest);
  free(name);
}

static void a_sweep_deletes_what_nothing_refers_to(void **state) {
  Weir__Manifest *kept, *lost;
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  char key[65];
  (void)state;
  commit("tiny-1", 5);
  kept = read_manifest("tiny-1", 5);
  lost = tiny_manifest(store, "tiny-1", 10); /* written, never committed */
  assert_int_equal(store_put(store, "model", 5, key, &err), 0);
  put_run("other-1", key);
  block_refs_free(refs);
  assert_int_equal(block_refs_read(store, &refs, &err), 0);
  assert_int_equal(checkpoint_sweep(store, refs, &done, &err), 0);
  assert_int_equal(done.blocks, 1);
  assert_int_equal(done.bytes, lost->blocks[0]->bytes);
  assert_int_equal(done.kept_blocks, 4);
  assert_false(has_block(lost->blocks[0]->sha256));
  assert_true(has_block(key));
  assert_int_equal(checkpoint_is_whole(store, kept, &err), 0);
  message_free(kept);
  message_free(lost);
}

static void nothing_is_swept_while_a_record_cannot_be_read(void **state) {
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  (void)state;
  message_free(tiny_manifest(store, "tiny-1", 5));
  assert_int_equal(store_put_record(store,
                                    &(struct store_record){"runs/tiny-1/checkpoints/00000000000000000005",
                                                           "\x0a\xff", 2, NULL},
                                    &err),
                   0);
  block_refs_free(refs);
  assert_int_equal(block_refs_read(store, &refs, &err), 0);
  assert_int_equal(checkpoint_sweep(store, refs, &done, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, "00000000000000000005"));
  assert_int_equal(count_blocks(), 3);
}

static void blocks_are_deleted_only_while_the_guard_holds(void **state) {
  Weir__CollectGarbageReply done;
  struct err err = ERR_NONE;
  (void)state;
  message_free(tiny_manifest(store, "tiny-1", 5));
  assert_int_equal(store_put_record(store, &(struct store_record){"coordinator/epoch", "8", 1, NULL}, &err),
                   0);
  block_refs_guard(refs, "coordinator/epoch", "7");
  assert_int_equal(checkpoint_sweep(store, refs, &done, &err), ERR_STALE);
  assert_int_equal(count_blocks(), 3);
  block_refs_guard(refs, "coordinator/epoch", "8");
  assert_int_equal(checkpoint_sweep(store, refs, &done, &err), 0);
  assert_int_equal(count_blocks(), 0);
}

static void a_deleted_run_leaves_nothing_and_others_alone(void **state) {
  struct err err = ERR_NONE;
  struct store_names names = {0};
  Weir__Manifest *other;
  (void)state;
  commit("tiny-1", 5);
  commit("tiny-1", 10);
  commit("tiny-10", 7);
  other = read_manifest("tiny-10", 7);
  put_run("tiny-1", other->model_sha256);
  assert_int_equal(
      store_put_record(store, &(struct store_record){"runs/tiny-1/events/00000000000000000001", "", 0, NULL},
                       &err),
      0);
  assert_int_equal(
      store_put_record(store, &(struct store_record){"runs/tiny-1/incarnation", "1", 1, NULL}, &err), 0);
  assert_int_equal(checkpoint_delete_run(store, refs, "tiny-1", NULL, &err), 0);
  assert_int_equal(store_list_records(store, "runs/", &names, &err), 0);
  assert_int_equal(names.count, 1);
  store_names_fini(&names);
  assert_int_equal(count_blocks(), 3);
  assert_int_equal(checkpoint_is_whole(store, other, &err), 0);
  assert_int_equal(checkpoint_delete_run(store, refs, "tiny-1", NULL, &err), ERR_NOT_FOUND);
  message_free(other);
}

static void a_run_is_found_by_a_prefix_that_is_its_alone(void **state) {
  struct err err = ERR_NONE;
  Weir__RunRecord *record;
  (void)state;
  put_run("tiny-a1", "");
  put_run("tiny-a1b", "");
  put_run("tiny-b2", "");
  assert_int_equal(checkpoint_find_run(store, "tiny-b", &record, &err), 0);
  assert_string_equal(record->run, "tiny-b2");
  message_free(record);
  assert_int_equal(checkpoint_find_run(store, "tiny-a1", &record, &err), 0); /* whole, though a prefix too */
  assert_string_equal(record->run, "tiny-a1");
  message_free(record);
  assert_int_equal(checkpoint_find_run(store, "tiny", &record, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "tiny-a1b, tiny-b2"));
  assert_int_equal(checkpoint_find_run(store, "nobody", &record, &err), ERR_NOT_FOUND);
  assert_int_equal(checkpoint_find_run(store, "../x", &record, &err), ERR_NOT_FOUND);
  assert_int_equal(checkpoint_find_run(store, "", &record, &err), ERR_INVALID);
}

static void references_are_counted_for_any_number_of_blocks(void **state) {
  enum { MANY = 5000 };
  struct err err = ERR_NONE;
  Weir__Manifest manifest = WEIR__MANIFEST__INIT;
  Weir__WrittenBlock *blocks = mem_new(MANY * sizeof *blocks), **list = mem_new(MANY * sizeof *list);
  char(*keys)[65] = mem_new(MANY * sizeof *keys);
  Weir__CollectGarbageReply done;
  (void)state;
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(store_put(store, &i, sizeof i, keys[i], &err), 0);
    weir__written_block__init(&blocks[i]);
    blocks[i].sha256 = keys[i];
    list[i] = &blocks[i];
  }
  manifest.blocks = list;
  manifest.n_blocks = MANY - 1;
  manifest.run = "many-1";
  block_refs_add(refs, &manifest);
  block_refs_add(refs, &manifest);
  assert_int_equal(checkpoint_sweep(store, refs, &done, &err), 0);
  assert_int_equal(done.blocks, 1);
  assert_int_equal(done.kept_blocks, MANY - 1);
  free(blocks);
  free(list);
  free(keys);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
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
      TEST(a_deleted_checkpoint_takes_only_the_blocks_that_nobody_else_has),
      TEST(a_commit_whose_answer_was_lost_keeps_its_blocks_when_it_is_made_again),
      TEST(a_commit_that_lands_after_the_references_were_read_keeps_its_blocks_when_it_is_made_again),
      TEST(a_checkpoint_committed_anew_replaces_the_one_before),
      TEST(a_sweep_deletes_what_nothing_refers_to),
      TEST(nothing_is_swept_while_a_record_cannot_be_read),
      TEST(blocks_are_deleted_only_while_the_guard_holds),
      TEST(a_deleted_run_leaves_nothing_and_others_alone),
      TEST(a_run_is_found_by_a_prefix_that_is_its_alone),
      TEST(references_are_counted_for_any_number_of_blocks),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A run goes on from a checkpoint, on any number of servers, as if nothing had happened; one that is damaged
   is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "tests/support/common/patience.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/restore_fixture.h"

static void any_number_of_servers_gets_the_same_blocks(void **state) {
  static const char *const ids[] = {"server-1", "server-2", "server-3"};
  struct restore_fixture f;
  (void)state;
  restore_fixture_init(&f, 1);
  for (size_t servers = 1; servers <= 3; servers++) {
    uint32_t n_blocks = 0;
    for (size_t s = 0; s < servers; s++) {
      struct hosted_run *run;
      struct err err;
      if (restore_run(&f, servers, ids[s], &run, &err))
        fail_msg("%s", err.text);
      n_blocks += run->n_own;
      for (uint32_t b = 0; b < run->n_own; b++) {
        size_t size_bytes, expected_bytes;
        void *content = read_content(run, run->blocks[b].index, &size_bytes);
        void *expected = read_content(f.snapshots.run, run->blocks[b].index, &expected_bytes);
        assert_int_equal(run->blocks[b].version, 1);
        assert_int_equal(size_bytes, expected_bytes);
        assert_memory_equal(content, expected, size_bytes);
        free(content);
        free(expected);
      }
      hosted_run_put(run);
    }
    assert_int_equal(n_blocks, BLOCKS);
  }
  restore_fixture_fini(&f);
}

/* Puts the run in the place of the one that wrote the checkpoint, as a roll-back does. */
static void roll_back(struct restore_fixture *f) {
  struct hosted_run *run;
  struct err err;
  if (restore_run(f, 1, "server-1", &run, &err))
    fail_msg("%s", err.text);
  run->incarnation = 1; /* what the fixture's workers say */
  run_table_remove(&f->snapshots.server.runs, "unit-1", "it is rolled back");
  report_log_open(&run->log, 1, 0);
  report_log_resume(&run->log);
  assert_int_equal(run_table_add(&f->snapshots.server.runs, run, &err), 0);
}

static void a_restored_run_ends_with_the_bits_of_one_that_was_not_disturbed(void **state) {
  struct restore_fixture f;
  struct attempt attempt;
  struct hosted_run *first, *second;
  struct err err;
  uint64_t lowest, highest;
  (void)state;
  restore_fixture_init(&f, 1);
  first = hosted_run_get(f.snapshots.run);
  push_version(&f.snapshots.server, 1);
  push_version(&f.snapshots.server, 2);
  roll_back(&f);
  second = run_table_find(&f.snapshots.server.runs, "unit-1", 1, &err);
  hosted_run_versions(second, &lowest, &highest);
  assert_true(lowest == 1 && highest == 1 && hosted_run_proven_version(second) == 1);
  start_pull(&f.snapshots.server, &attempt, 0, 0);
  finish_with_error(&attempt, ERR_DROPPED, "block 0: version 0 was dropped, the newest is 1");
  f.snapshots.server.n_told = 0;
  push_version(&f.snapshots.server, 1);
  push_version(&f.snapshots.server, 2); /* with the evaluation of version 2, again */
  assert_int_equal(f.snapshots.server.n_told, 3);
  assert_int_equal(f.snapshots.server.step.step, 2);
  assert_true(f.snapshots.server.step.seconds < 60);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    size_t size_bytes;
    void *expected = read_content(first, b, &size_bytes), *content = read_content(second, b, &size_bytes);
    assert_memory_equal(content, expected, size_bytes);
    free(expected);
    free(content);
  }
  hosted_run_put(first);
  hosted_run_put(second);
  restore_fixture_fini(&f);
}

static void a_run_that_is_restored_at_its_end_is_complete_when_it_is_evaluated(void **state) {
  struct restore_fixture f;
  struct hosted_run *other;
  struct err err;
  (void)state;
  restore_fixture_init(&f, STEPS);
  f.snapshots.server.n_told = 0;
  roll_back(&f);
  assert_int_equal(f.snapshots.server.n_told, 0);
  push_eval(&f.snapshots.server, STEPS, 1, STEPS);
  push_eval(&f.snapshots.server, STEPS, 0, STEPS);
  wait_told(&f.snapshots.server, 2);
  assert_int_equal(f.snapshots.server.told[0], WEIR__MEMBER_MESSAGE__BODY_EVAL);
  assert_int_equal(f.snapshots.server.told[1], WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  assert_int_equal(restore_run(&f, 2, "server-1", &other, &err), 0); /* without the metrics' block */
  assert_int_equal(other->own[STATISTICS_BLOCK], -1);
  report_log_open(&other->log, 1, STEPS);
  report_log_resume(&other->log);
  wait_told(&f.snapshots.server, 3);
  assert_int_equal(f.snapshots.server.told[2], WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  hosted_run_put(other);
  restore_fixture_fini(&f);
}

static void assert_is_refused(struct restore_fixture *f, enum err_code code, const char *text) {
  struct hosted_run *run;
  struct err err;
  if (restore_run(f, 1, "server-1", &run, &err) != (int)code || !strstr(err.text, text))
    fail_msg("%s: %s; expected %s: %s", err_name(err.code), err.text, err_name(code), text);
}

static void a_block_that_is_damaged_or_missing_is_named(void **state) {
  struct restore_fixture f;
  struct double_item *item;
  const char *key;
  char text[256];
  (void)state;
  restore_fixture_init(&f, 1);
  key = f.snapshots.answers[0]->written->blocks[2]->sha256;
  item = double_find(&f.snapshots.store, key);
  ((char *)item->data)[100] ^= 1;
  snprintf(text, sizeof text, "run 'unit-1' at version 1: block 2, key %s: ", key);
  assert_is_refused(&f, ERR_CORRUPT, text);
  ((char *)item->data)[100] ^= 1;
  item->size--;
  assert_is_refused(&f, ERR_CORRUPT, text);
  item->size++;
  item->name[0] = 'x';
  assert_is_refused(&f, ERR_NOT_FOUND, text);
  restore_fixture_fini(&f);
}

static void a_checkpoint_that_does_not_fit_is_lost(void **state) {
  struct restore_fixture f;
  struct double_item *manifest;
  char *name;
  (void)state;
  restore_fixture_init(&f, 1);
  name = f.manifest;
  f.model_sha256[0] ^= 1;
  assert_is_refused(&f, ERR_CORRUPT, "is of another model");
  f.model_sha256[0] ^= 1;
  f.version = 2;
  assert_is_refused(&f, ERR_CORRUPT, "is the checkpoint of run 'unit-1' at version 1");
  f.version = 1;
  manifest = double_find(&f.snapshots.store, name);
  memset(manifest->data, 0xff, manifest->size);
  assert_is_refused(&f, ERR_CORRUPT, name);
  f.manifest = checkpoint_name("unit-1", 77);
  assert_is_refused(&f, ERR_NOT_FOUND, f.manifest);
  free(f.manifest);
  f.manifest = name;
  restore_fixture_fini(&f);
}

static void a_block_of_another_size_than_the_models_is_refused(void **state) {
  struct restore_fixture f;
  Weir__WrittenBlock *blocks[BLOCKS];
  Weir__BlocksWritten written;
  (void)state;
  restore_fixture_init(&f, 1);
  written = *f.snapshots.answers[0]->written;
  memcpy(blocks, written.blocks, sizeof blocks);
  Weir__WrittenBlock swapped = *blocks[2];
  swapped.sha256 = blocks[1]->sha256;
  blocks[2] = &swapped;
  written.blocks = blocks;
  free(f.manifest);
  f.manifest = commit_version(&f.snapshots.store.base, &written, f.model_sha256);
  assert_is_refused(&f, ERR_CORRUPT,
                    "it has 195712 bytes, but 1803 elements with 1803 values of slots are 14424");
  written.n_blocks = 3;
  free(f.manifest);
  f.manifest = commit_version(&f.snapshots.store.base, &written, f.model_sha256);
  assert_is_refused(&f, ERR_CORRUPT, "the checkpoint has 3 blocks, the model 4");
  restore_fixture_fini(&f);
}

/* The manifest as that of a run with another optimizer; slots_step: where that began. */
static void lay_out_otherwise(struct restore_fixture *f, Weir__RunSpec *by, uint64_t slots_step) {
  Weir__Manifest *manifest;
  struct err err;
  assert_int_equal(checkpoint_read(&f->snapshots.store.base, f->manifest, &manifest, &err), 0);
  spec_free(manifest->layout_spec);
  manifest->layout_spec = by;
  manifest->slots_step = slots_step;
  assert_int_equal(checkpoint_write_record(&f->snapshots.store.base, f->manifest, manifest, NULL, &err), 0);
  manifest->layout_spec = NULL;
  message_free(manifest);
}

static void assert_slots(struct restore_fixture *f, bool are_kept) {
  struct hosted_run *run;
  struct err err;
  if (restore_run(f, 1, "server-1", &run, &err))
    fail_msg("%s", err.text);
  for (uint32_t b = 0; b < run->n_own; b++) {
    const struct hosted_block *block = &run->blocks[b], *was = &f->snapshots.run->blocks[b];
    if (block->kind != BLOCK_PARAMETERS)
      continue;
    assert_memory_equal(block->current->data, was->current->data, block->current->size_bytes);
    for (uint32_t i = 0; i < block->slot_elems; i++)
      assert_true(((float *)block->slots->data)[i] == (are_kept ? ((float *)was->slots->data)[i] : 0));
  }
  hosted_run_put(run);
}

static void slots_of_another_optimizer_begin_anew(void **state) {
  struct restore_fixture f;
  Weir__RunSpec *by;
  (void)state;
  restore_fixture_init(&f, 1);
  by = spec_copy(make_order(1, 1)->spec);
  by->train->average = mem_new(sizeof *by->train->average);
  weir__average_spec__init(by->train->average);
  lay_out_otherwise(&f, by, 0); /* it says that there is an average, which is not there */
  assert_is_refused(&f, ERR_CORRUPT, "elements as its run keeps them are");
  spec_free(by);
  by = spec_copy(make_order(1, 1)->spec);
  lay_out_otherwise(&f, by, 0);
  assert_slots(&f, true);
  lay_out_otherwise(&f, by, 1);
  assert_slots(&f, false);
  by->train->optimizer->name = mem_strdup("lion");
  by->train->optimizer->has_momentum = false;
  lay_out_otherwise(&f, by, 0);
  assert_slots(&f, false);
  by->train->batch = 0;
  lay_out_otherwise(&f, by, 0);
  assert_is_refused(&f, ERR_CORRUPT, "the spec of its blocks: train.batch");
  spec_free(by);
  restore_fixture_fini(&f);
}

static void a_store_that_is_away_is_asked_again(void **state) {
  struct restore_fixture f;
  struct hosted_run *run;
  struct err err;
  (void)state;
  restore_fixture_init(&f, 1);
  double_fail(&f.snapshots.store, 5, ERR_UNAVAILABLE);
  assert_int_equal(restore_run(&f, 1, "server-1", &run, &err), 0);
  hosted_run_put(run);
  assert_int_equal(f.n_pauses, 5);
  f.n_pauses = 0;
  f.pauses_max = 3;
  double_fail(&f.snapshots.store, 1 << 30, ERR_TIMEOUT);
  assert_is_refused(&f, ERR_CANCELLED, "the run was taken back while it was loaded");
  assert_int_equal(f.n_pauses, 3);
  f.pauses_max = 1 << 30;
  f.patience_ms = 0;
  assert_is_refused(&f, ERR_TIMEOUT, "the store did not answer for 0 s: store: nobody answers");
  double_fail(&f.snapshots.store, 0, 0);
  restore_fixture_fini(&f);
}

static void an_order_without_a_checkpoint_begins_at_version_0(void **state) {
  struct restore_fixture f;
  Weir__LoadRun order;
  struct hosted_run *run;
  struct err err;
  (void)state;
  restore_fixture_init(&f, 0);
  order = *make_order(2, 1);
  order.step = 1;
  assert_int_equal(make_run(&f.snapshots.server, &order, "server-1", &run, &err), ERR_INVALID);
  assert_string_equal(err.text, "the order to load run 'unit-1' at version 1 of 3 names no checkpoint of it");
  order.step = STEPS + 1;
  order.manifest = f.manifest;
  assert_int_equal(make_run(&f.snapshots.server, &order, "server-1", &run, &err), ERR_INVALID);
  assert_int_equal(restore_run(&f, 1, "server-1", &run, &err), 0); /* also from a manifest of version 0 */
  hosted_run_put(run);
  restore_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_servers_gets_the_same_blocks),
      cmocka_unit_test(a_restored_run_ends_with_the_bits_of_one_that_was_not_disturbed),
      cmocka_unit_test(a_run_that_is_restored_at_its_end_is_complete_when_it_is_evaluated),
      cmocka_unit_test(a_block_that_is_damaged_or_missing_is_named),
      cmocka_unit_test(a_checkpoint_that_does_not_fit_is_lost),
      cmocka_unit_test(a_block_of_another_size_than_the_models_is_refused),
      cmocka_unit_test(slots_of_another_optimizer_begin_anew),
      cmocka_unit_test(a_store_that_is_away_is_asked_again),
      cmocka_unit_test(an_order_without_a_checkpoint_begins_at_version_0),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

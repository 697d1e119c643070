/* Checkpoints of a run whose gradients are late: each has the weights that the steps after it are computed
   from, so that a roll-back to it changes no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/roll_back.h"

enum { LAG = 2, LAST = 7, AT = 4 };

/* A run that was computed up to version AT, with a checkpoint of it. */
struct fixture {
  struct snapshot_fixture snapshots;
  const Weir__BlocksWritten *written;
};

static const Weir__LoadRun *late_order(uint64_t incarnation, size_t servers) {
  static uint64_t evaluated[] = {EVAL_EVERY};
  const Weir__LoadRun *order = make_order(incarnation, servers);
  order->spec->train->steps = order->plan->steps = LAST;
  order->spec->eval->every_steps = LAST; /* which the fixture's workers do not push */
  order->spec->eval->at = evaluated;
  order->spec->eval->n_at = 1;
  order_lag(order, LAG);
  return order;
}

/* is_ahead: it was ordered when the run had not come to it. */
static void setup(struct fixture *f, bool is_ahead) {
  *f = (struct fixture){0};
  snapshot_fixture_init_order(&f->snapshots, late_order(1, 1));
  for (uint64_t step = 0; step < AT; step++) {
    if (is_ahead && step == AT - 1)
      order_snapshot(&f->snapshots, AT);
    push_version(&f->snapshots.server, step);
  }
  if (!is_ahead)
    order_snapshot(&f->snapshots, AT);
  f->written = wait_written(&f->snapshots, 1, AT);
}

/* Loads the blocks that were written, as of a manifest that says so many versions before AT are in them. */
static int restore(struct fixture *f, const Weir__BlocksWritten *written, uint32_t versions_before,
                   struct hosted_run **run, struct err *err) {
  const struct roll_back from = {late_order(2, 1), written, versions_before};
  return roll_back_load(&f->snapshots, &from, run, err);
}

static struct hosted_run *restore_whole(struct fixture *f) {
  struct hosted_run *run;
  struct err err = ERR_NONE;
  if (restore(f, f->written, LAG, &run, &err))
    fail_msg("%s", err.text);
  return run;
}

static const struct buffer *version_of(const struct hosted_run *run, uint32_t block, uint64_t version) {
  return hosted_block_find(&run->blocks[run->own[block]], version);
}

static void a_checkpoint_brings_the_versions_that_its_next_steps_are_computed_from(void **state) {
  (void)state;
  for (int is_ahead = 0; is_ahead < 2; is_ahead++) {
    struct fixture f;
    struct hosted_run *restored;
    setup(&f, is_ahead);
    restored = restore_whole(&f);
    for (uint32_t block = 0; block < BLOCKS; block++) {
      for (uint64_t version = AT - LAG; version <= AT; version++) {
        const struct buffer *was = version_of(f.snapshots.run, block, version);
        const struct buffer *is = version_of(restored, block, version);
        assert_non_null(is);
        assert_int_equal(is->size_bytes, was->size_bytes);
        assert_memory_equal(is->data, was->data, was->size_bytes);
      }
      assert_null(version_of(restored, block, AT - LAG - 1));
    }
    hosted_run_put(restored);
    snapshot_fixture_fini(&f.snapshots);
  }
}

static void what_is_restored_ends_in_the_same_bits_and_is_written_as_it_was(void **state) {
  struct fixture f;
  struct hosted_run *first, *second;
  const Weir__BlocksWritten *again;
  struct attempt pull;
  (void)state;
  setup(&f, false);
  first = hosted_run_get(f.snapshots.run);
  for (uint64_t step = AT; step < LAST; step++)
    push_version(&f.snapshots.server, step);
  second = restore_whole(&f);
  roll_back_to(&f.snapshots, second);
  order_snapshot(&f.snapshots, AT);
  again = wait_written(&f.snapshots, 2, AT);
  for (size_t i = 0; i < BLOCKS; i++)
    assert_string_equal(again->blocks[i]->sha256, f.written->blocks[i]->sha256);
  start_pull(&f.snapshots.server, &pull, 0, AT - LAG); /* as a worker that joins does */
  finish_with_version(&pull, AT - LAG);
  for (uint64_t step = AT; step < LAST; step++)
    push_version(&f.snapshots.server, step);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    size_t size_bytes;
    void *expected = read_content(first, b, &size_bytes), *content = read_content(second, b, &size_bytes);
    assert_memory_equal(content, expected, size_bytes);
    free(expected);
    free(content);
  }
  hosted_run_put(first);
  snapshot_fixture_fini(&f.snapshots);
}

static void expect_corrupt(struct fixture *f, const Weir__BlocksWritten *written, uint32_t versions_before,
                           const char *text) {
  struct hosted_run *run;
  struct err err = ERR_NONE;
  if (restore(f, written, versions_before, &run, &err) != ERR_CORRUPT || !strstr(err.text, text))
    fail_msg("%s: %s; expected '%s'", err_name(err.code), err.text, text);
}

static void a_checkpoint_that_lacks_them_is_lost(void **state) {
  struct fixture f;
  Weir__WrittenBlock *blocks[BLOCKS];
  Weir__BlocksWritten swapped;
  (void)state;
  setup(&f, false);
  expect_corrupt(&f, f.written, 0, "with 0 versions before its own, and the run needs 2");
  expect_corrupt(&f, f.written, 1, "with 1 versions before its own, and the run needs 2");
  expect_corrupt(&f, f.written, 3, "but 65536 elements with 65536 values of slots are 524288");
  expect_corrupt(&f, f.written, AT + 1, "more versions before its own than there can be");
  expect_corrupt(&f, f.written, UINT32_MAX, "more versions before its own than there can be");
  swapped = *f.written; /* blocks before it are restored twice */
  memcpy(blocks, swapped.blocks, sizeof blocks);
  Weir__WrittenBlock other = *blocks[2];
  other.sha256 = blocks[1]->sha256;
  blocks[2] = &other;
  swapped.blocks = blocks;
  expect_corrupt(&f, &swapped, LAG, "block 2, key ");
  snapshot_fixture_fini(&f.snapshots);
}

static void a_block_lends_a_version_only_with_those_before_it(void **state) {
  struct fixture f;
  struct hosted_block *block;
  struct block_content content;
  (void)state;
  setup(&f, false);
  wait_shards(&f.snapshots);
  block = &f.snapshots.run->blocks[0];
  content = hosted_block_lend(block, AT, LAG);
  assert_int_equal(content.n_before, LAG);
  assert_ptr_equal(content.weights, block->current);
  for (uint32_t i = 0; i < LAG; i++)
    assert_ptr_equal(content.before[i], hosted_block_find(block, AT - LAG + i));
  block_content_put(&content);
  hosted_block_rest(block); /* it is not held: nothing goes */
  content = hosted_block_lend(block, 1, 2);
  assert_null(content.weights); /* there is no version before 0 */
  snapshot_fixture_fini(&f.snapshots);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_checkpoint_brings_the_versions_that_its_next_steps_are_computed_from),
      cmocka_unit_test(what_is_restored_ends_in_the_same_bits_and_is_written_as_it_was),
      cmocka_unit_test(a_checkpoint_that_lacks_them_is_lost),
      cmocka_unit_test(a_block_lends_a_version_only_with_those_before_it),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests_name("parameters, ssp", tests, NULL, NULL);
}

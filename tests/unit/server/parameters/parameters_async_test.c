/* A server in mode async: each microbatch is an update when it comes, exactly once, through roll-backs too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "server/parameters/round/marks.h"
#include "tests/support/parameters/parameters_calls.h"
#include "tests/support/parameters/roll_back.h"

enum { WINDOW = 3, LAST = 9, EVALUATED = 4 };
static const double lr = 0.5;

static const Weir__LoadRun *async_order(void) {
  static uint64_t evaluated[] = {EVALUATED};
  const Weir__LoadRun *order = make_order(1, 1);
  Weir__TrainSpec *train = order->spec->train;
  train->steps = order->plan->steps = LAST;
  train->mode = (char *)"async";
  train->has_window = true;
  train->window = WINDOW;
  train->optimizer->has_momentum = false;
  order->spec->eval->every_steps = LAST;
  order->spec->eval->at = evaluated;
  order->spec->eval->n_at = 1;
  return order;
}

static int setup(void **state) {
  struct snapshot_fixture *f = mem_new(sizeof *f);
  snapshot_fixture_init_order(f, async_order());
  *state = f;
  return 0;
}

static int teardown(void **state) {
  snapshot_fixture_fini(*state);
  free(*state);
  return 0;
}

/* Waits for the reply, whatever version it names. */
static void push_one(struct snapshot_fixture *f, uint32_t block, uint64_t step, uint32_t m) {
  struct attempt attempt;
  start_part(&f->server, &attempt, block, step, m);
  attempt_finish(&attempt);
  if (attempt.err.code)
    fail_msg("%s", attempt.err.text);
  free(attempt.data);
}

static void push_steps(struct snapshot_fixture *f, uint32_t block, uint64_t begin, uint64_t end) {
  for (uint64_t step = begin; step < end; step++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      push_one(f, block, step, m);
}

static void push_all(struct snapshot_fixture *f, uint64_t begin, uint64_t end) {
  for (uint64_t step = begin; step < end; step++)
    for (uint32_t block = 0; block < BLOCKS; block++)
      push_steps(f, block, step, step + 1);
}

static void push_evaluation(struct snapshot_fixture *f, uint64_t version) {
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
    push_eval(&f->server, version, chunk, version);
}

static float newest_of(struct snapshot_fixture *f, uint32_t block) {
  float element;
  uint64_t version;
  wait_shards(f);
  version = f->run->blocks[f->run->own[block]].version;
  pull_first_element(&f->server, block, version, &element);
  return element;
}

/* By how much so many whole steps have moved each weight: microbatch m of step s is m + 1 + s. */
static double moved_by_steps(uint64_t begin, uint64_t end) {
  double sum = 0;
  for (uint64_t step = begin; step < end; step++)
    for (uint32_t m = 0; m < MICROBATCHES; m++)
      sum += (double)m + 1 + (double)step;
  return lr * sum;
}

static void assert_moved(double from, double to, double by) {
  assert_true(from - to > by - 0.01 && from - to < by + 0.01);
}

static uint64_t version_of(const struct snapshot_fixture *f, uint32_t block) {
  return f->run->blocks[f->run->own[block]].version;
}

static void a_microbatch_counts_once_however_often_it_comes(void **state) {
  struct snapshot_fixture *f = *state;
  float first = newest_of(f, 0);
  for (int again = 0; again < 3; again++) {
    push_one(f, 0, 0, 0);
    push_one(f, 0, 2, 1);
  }
  assert_moved(first, newest_of(f, 0), lr * (1 + 4));
  for (int again = 0; again < 2; again++)
    for (uint64_t step = WINDOW; step-- > 0;)
      push_steps(f, 0, step, step + 1);
  assert_moved(first, newest_of(f, 0), moved_by_steps(0, WINDOW));
  assert_int_equal(version_of(f, 0), WINDOW);
}

static void a_sum_of_microbatches_and_one_beyond_the_window_are_refused(void **state) {
  struct snapshot_fixture *f = *state;
  Weir__PushRequest sum = push_request(0, 0, 0, 1);
  size_t size_bytes = part_of(&f->server, 0, 1);
  struct attempt attempt;
  start_push(&f->server, &attempt, &sum, f->server.values, size_bytes);
  finish_with_error(&attempt, ERR_INVALID, "level must be 0, not 1");
  start_part(&f->server, &attempt, 0, WINDOW + 1, 0);
  finish_with_error(&attempt, ERR_INVALID, "computed from version 4, but the block is at version 0");
  push_steps(f, 0, 0, 2); /* the others are behind */
  start_part(&f->server, &attempt, 0, WINDOW + 1, 0);
  finish_with_error(&attempt, ERR_INVALID, "but the block is at version 2");
}

/* What is not finite is not marked: it may come again. */
static void what_is_refused_changes_nothing(void **state) {
  struct snapshot_fixture *f = *state;
  Weir__PushRequest push = push_request(0, 1, 2, 0);
  float first = newest_of(f, 0);
  size_t size_bytes = part_of(&f->server, 0, 1);
  struct attempt attempt;
  f->server.values[7] = (float)(0.0 / 0.0);
  start_push(&f->server, &attempt, &push, f->server.values, size_bytes);
  finish_with_error(&attempt, ERR_INVALID, "element 7 is");
  assert_moved(first, newest_of(f, 0), 0);
  push_one(f, 0, 1, 2);
  assert_moved(first, newest_of(f, 0), lr * 4);
}

static void who_is_ahead_gets_the_newest_weights_at_once_as_far_as_the_window(void **state) {
  struct snapshot_fixture *f = *state;
  struct attempt ahead, waiting;
  float element, first = newest_of(f, 0);
  start_waiting_part(&f->server, &ahead, 0, 0, 2);
  finish_with_version(&ahead, 1);
  pull_first_element(&f->server, 0, WINDOW, &element);
  assert_moved(first, element, lr * 3);
  start_waiting_part(&f->server, &waiting, 1, WINDOW, 0);
  wait_parked(&f->server, 1, 1);
  push_steps(f, 1, 0, 1); /* as far as the window goes: but the version is evaluated */
  wait_parked(&f->server, 1, 1);
  push_steps(f, 1, 1, WINDOW + 1);
  finish_with_version(&waiting, WINDOW + 1);
}

static void an_evaluated_version_has_no_updates_of_later_steps(void **state) {
  struct snapshot_fixture *f = *state;
  struct attempt early, statistics;
  float exact, again, first = newest_of(f, 0);
  start_pull(&f->server, &early, 0, EVALUATED);
  push_all(f, 0, EVALUATED - 1);
  wait_parked(&f->server, 0, 1);
  start_part(&f->server, &statistics, 0, EVALUATED, 0);
  finish_with_error(&statistics, ERR_INVALID, "computed from version 4, but the block is at version 3");
  push_all(f, EVALUATED - 1, EVALUATED);
  finish_with_version(&early, EVALUATED);
  pull_first_element(&f->server, 0, EVALUATED, &exact);
  assert_moved(first, exact, moved_by_steps(0, EVALUATED));
  push_one(f, 0, EVALUATED, 0);
  pull_first_element(&f->server, 0, EVALUATED, &again);
  assert_true(again == exact);
  pull_first_element(&f->server, 0, EVALUATED + 1, &again);
  assert_moved(exact, again, lr * (1 + EVALUATED));
  start_pull(&f->server, &statistics, STATISTICS_BLOCK, EVALUATED + 1);
  wait_parked(&f->server, STATISTICS_BLOCK, 1);
  push_evaluation(f, EVALUATED);
  finish_with_version(&statistics, EVALUATED + 1);
  push_all(f, EVALUATED, LAST);
  assert_moved(first, newest_of(f, 0), moved_by_steps(0, LAST));
  start_pull(&f->server, &early, 0, EVALUATED);
  finish_with_error(&early, ERR_DROPPED, "version 4 was dropped");
}

static struct hosted_run *load_written(struct snapshot_fixture *f, const Weir__BlocksWritten *written) {
  const struct roll_back from = {async_order(), written, 0};
  struct hosted_run *run;
  struct err err = ERR_NONE;
  if (roll_back_load(f, &from, &run, &err))
    fail_msg("%s", err.text);
  return run;
}

/* What the block's present step lacks, as bits. */
static uint64_t missing_of(const struct hosted_run *run, uint32_t block) {
  uint64_t microbatches = 0, chunks = 0;
  hosted_block_missing(&run->blocks[run->own[block]], &microbatches, &chunks);
  return microbatches;
}

/* Each block is written when it comes to the version, with whatever was applied of later steps by then. */
static void a_checkpoint_has_what_was_applied_of_later_steps(void **state) {
  struct snapshot_fixture *f = *state;
  float first[STATISTICS_BLOCK];
  struct hosted_run *restored;
  for (uint32_t block = 0; block < STATISTICS_BLOCK; block++)
    first[block] = newest_of(f, block);
  push_all(f, 0, 1);
  push_steps(f, 0, 2, 3); /* as a whole */
  push_one(f, 1, 2, 3);
  push_one(f, 2, 3, 5);
  order_snapshot(f, 2);
  push_all(f, 1, 2);
  assert_int_equal(version_of(f, 0), 3);
  push_one(f, 1, 2, 4); /* behind the checkpoint */
  restored = load_written(f, wait_written(f, 1, 2));
  assert_int_equal(missing_of(restored, 0), 0);
  assert_int_equal(missing_of(restored, 1), 0x3f & ~(1 << 3));
  assert_int_equal(missing_of(restored, 2), 0x3f);
  roll_back_to(f, restored);
  push_all(f, 2, EVALUATED);
  for (uint32_t block = 0; block < STATISTICS_BLOCK; block++) {
    assert_int_equal(version_of(f, block), EVALUATED);
    assert_moved(first[block], newest_of(f, block), moved_by_steps(0, EVALUATED));
  }
}

/* Its content is what the block had at one moment: weights, and marks of what is in them. */
static void updates_beside_a_checkpoint_do_not_touch_it(void **state) {
  struct snapshot_fixture *f = *state;
  struct hosted_run *restored;
  float first = newest_of(f, 0), element;
  const struct hosted_block *block;
  double_hang(&f->store, true);
  push_all(f, 0, 1);
  push_one(f, 0, 2, 3);
  order_snapshot(f, 1);
  push_all(f, 1, 3); /* what was applied before the checkpoint, too */
  assert_moved(first, newest_of(f, 0), moved_by_steps(0, 3));
  double_hang(&f->store, false);
  restored = load_written(f, wait_written(f, 1, 1));
  block = &restored->blocks[restored->own[0]];
  element = *(const float *)block->current->data;
  assert_moved(first, element, moved_by_steps(0, 1) + lr * 6);
  assert_int_equal(missing_of(restored, 0), 0x3f);
  hosted_run_put(restored);
}

static void a_checkpoint_of_an_evaluated_version_is_exact_or_too_late(void **state) {
  struct snapshot_fixture *f = *state;
  const Weir__BlocksWritten *written;
  push_all(f, 0, EVALUATED);
  push_one(f, 0, EVALUATED, 0);
  order_snapshot(f, EVALUATED);
  written = wait_answer(f, 1);
  assert_true(written->is_too_late);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_microbatch_counts_once_however_often_it_comes),
      TEST(a_sum_of_microbatches_and_one_beyond_the_window_are_refused),
      TEST(what_is_refused_changes_nothing),
      TEST(who_is_ahead_gets_the_newest_weights_at_once_as_far_as_the_window),
      TEST(an_evaluated_version_has_no_updates_of_later_steps),
      TEST(a_checkpoint_has_what_was_applied_of_later_steps),
      TEST(updates_beside_a_checkpoint_do_not_touch_it),
      TEST(a_checkpoint_of_an_evaluated_version_is_exact_or_too_late),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests_name("parameters, async", tests, NULL, NULL);
}

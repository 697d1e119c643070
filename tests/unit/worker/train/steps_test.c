/* A worker's steps: which task is begun, and what is sent when views and versions come in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/steps_doubles.h"
#include "tests/support/worker/steps_fixture.h"
#include "worker/train/run/receipt.h"

static int setup(void **state) {
  struct mode sync = {.def = mode_at(0)};
  *state = steps_fixture_new(&sync, STEPS);
  return 0;
}

static int teardown(void **state) {
  steps_fixture_free(*state);
  return 0;
}

static void the_next_version_is_computed_ahead_and_pushed_once_it_is_complete(void **state) {
  struct fixture *f = *state;
  struct work work, ahead;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  work = begin(f, 0, 0);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  assert_int_equal(sent_parts(f, 0, 0, 0), 1);
  ahead = begin(f, 1, 0);
  assert_true(steps_is_wanted(&f->run, &ahead));
  assert_false(steps_is_current(&f->run, &ahead));
  arrive(f, 1);
  assert_true(steps_is_current(&f->run, &ahead));
  steps_end(&f->run, &ahead, true);
}

static void work_ahead_makes_way_for_what_a_lost_worker_left(void **state) {
  struct fixture *f = *state;
  struct work work, ahead;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  work = begin(f, 0, 0);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  ahead = begin(f, 1, 0);
  assert_false(steps_should_yield(&f->run, &ahead));
  assign(f, 0, 2);
  assert_true(steps_should_yield(&f->run, &ahead));
  steps_end(&f->run, &ahead, false);
  work = begin(f, 0, 1);
  steps_end(&f->run, &work, true);
}

/* Dropped as work ahead, the task ends when its version is the current one already and a view has given it to
   another: the part that was kept for it would never be sent, and the step never complete. */
static void a_dropped_task_that_went_to_another_worker_holds_no_part_back(void **state) {
  struct fixture *f = *state;
  struct work work[2], ahead[2];
  join(f, 0, (struct task_range){0, 2});
  arrive(f, 0);
  for (uint32_t m = 0; m < 2; m++)
    work[m] = begin(f, 0, m);
  for (uint32_t m = 0; m < 2; m++) {
    deliver(f, &work[m]);
    steps_end(&f->run, &work[m], true);
  }
  for (uint32_t m = 0; m < 2; m++)
    ahead[m] = begin(f, 1, m);
  arrive(f, 1);
  deliver(f, &ahead[0]);
  steps_end(&f->run, &ahead[0], true);
  assign(f, 0, 1);
  assert_int_equal(sent_parts(f, 1, 0, 0), 0); /* microbatch 1 is under way */
  steps_end(&f->run, &ahead[1], false);
  assert_int_equal(sent_parts(f, 1, 0, 0), 1);
}

static void set_hold(struct fixture *f, uint64_t hold) {
  f->run.hold = hold;
  steps_assign(&f->run);
}

static void compute(struct fixture *f, uint64_t version) {
  struct work work = begin(f, version, 0);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  assert_int_equal(sent_parts(f, version, 0, 0), 1);
}

static void nothing_is_computed_from_a_held_version_before_the_hold_is_raised(void **state) {
  struct fixture *f = *state;
  struct work work;
  f->run.hold = 1;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  compute(f, 0);
  assert_false(steps_begin(&f->run, NULL, &work));
  arrive(f, 1);
  assert_false(steps_begin(&f->run, NULL, &work));
  set_hold(f, 2);
  compute(f, 1);
  arrive(f, 2);
  assert_false(steps_begin(&f->run, NULL, &work));
}

/* The coordinator that sent it knew less of the step than this worker. Were the version's tasks taken for
   tasks of a held one, their parts would have nowhere to go, and nobody would compute them again. */
static void a_hold_is_too_late_for_a_version_whose_tasks_are_assigned(void **state) {
  struct fixture *f = *state;
  struct work ahead;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  compute(f, 0);
  ahead = begin(f, 1, 0);
  set_hold(f, 1);
  arrive(f, 1);
  deliver(f, &ahead);
  steps_end(&f->run, &ahead, true);
  assert_int_equal(sent_parts(f, 1, 0, 0), 1);
  arrive(f, 2);
  assert_false(steps_begin(&f->run, NULL, &ahead)); /* opened under the hold, so it keeps to it */
  set_hold(f, 0);
  compute(f, 2);
  arrive(f, 3);
}

static void a_hold_at_the_present_version_does_not_keep_its_tasks_from_another_share(void **state) {
  struct fixture *f = *state;
  struct work work;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  compute(f, 0);
  arrive(f, 1);
  f->run.hold = 1;
  assign(f, 0, 2);
  for (uint32_t m = 0; m < 2; m++) {
    work = begin(f, 1, m);
    deliver(f, &work);
    steps_end(&f->run, &work, true);
  }
  assert_int_equal(sent_parts(f, 1, 0, 1), 1);
}

static void in_a_group_sums_go_through_it_and_rows_and_pulls_do_not(void **state) {
  struct fixture *f = *state;
  struct transfer_item items[] = {
      {.kind = TRANSFER_PUSH, .block = 0, .buffer = block_pool_take(f->run.pool, 0)},
      {.kind = TRANSFER_PUSH, .block = 1, .buffer = block_pool_take(f->run.pool, 1)},
      {.kind = TRANSFER_PULL, .block = 0}};
  f->run.outlet = &(struct outlet){.give = steps_fixture_give};
  for (int i = 0; i < 3; i++)
    steps_send(&f->run, &items[i], 1);
  assert_int_equal(f->n_given, 1);
  assert_int_equal(f->given[0].block, 0);
  assert_int_equal(f->n_sent, 2);
}

static void a_version_that_is_read_for_a_group_is_not_written_over(void **state) {
  struct fixture *f = *state;
  struct weights_set *set;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  arrive(f, 1);
  set = weights_find(f->run.weights, 1);
  assert_ptr_equal(set, f->run.weights->current);
  set->readers++;
  arrive(f, 2);
  assert_ptr_equal(set, f->run.weights->current);
  steps_release(&f->run, set);
  assert_int_equal(f->run.weights->current->version, 2);
  assert_null(weights_find(f->run.weights, 1));
}

/* Of microbatches and chunks [begin, end) of a step. */
static void reissue(struct fixture *f, uint64_t incarnation, uint64_t step, uint32_t begin, uint32_t end) {
  Weir__Reissue order = WEIR__REISSUE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *list[] = {&range};
  range.begin = begin;
  range.end = end;
  order.run = f->load.run;
  order.incarnation = incarnation;
  order.step = step;
  order.microbatches = order.chunks = list;
  order.n_microbatches = order.n_chunks = 1;
  steps_reissue(&f->run, &order);
}

static struct work begin_extra(struct fixture *f, uint64_t version, uint32_t index) {
  struct work work = begin(f, version, index);
  assert_true(work.is_extra);
  assert_int_equal(work.kind, WORK_MICROBATCH);
  assert_false(work.is_for_device);
  return work;
}

static void expect_no_task(struct fixture *f) {
  struct work work;
  assert_false(steps_begin(&f->run, NULL, &work));
}

static void extra_tasks_of_the_present_step_come_before_our_own(void **state) {
  struct fixture *f = *state;
  struct work extra, work;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  reissue(f, 0, 0, 2, 3);
  extra = begin_extra(f, 0, 2);
  work = begin(f, 0, 0);
  assert_false(work.is_extra);
  assert_true(steps_is_current(&f->run, &extra));
  steps_end(&f->run, &extra, true);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  assert_int_equal(sent_parts(f, 0, 0, 0), 1);
}

static void an_order_for_a_version_to_come_is_kept_and_one_for_another_is_void(void **state) {
  struct fixture *f = *state;
  struct work extra;
  join(f, 0, (struct task_range){0, 0});
  reissue(f, 0, 1, 3, 4); /* nothing has come yet */
  arrive(f, 0);
  expect_no_task(f);
  arrive(f, 1);
  extra = begin_extra(f, 1, 3);
  steps_end(&f->run, &extra, true);
  reissue(f, 0, 0, 3, 4); /* over */
  expect_no_task(f);
  reissue(f, 7, 1, 3, 4); /* of another incarnation */
  expect_no_task(f);
  reissue(f, 0, 1, 0, 0);
  expect_no_task(f);
}

static void extra_tasks_are_void_when_their_step_is_over(void **state) {
  struct fixture *f = *state;
  struct work extra, work;
  join(f, 0, (struct task_range){0, 0});
  arrive(f, 0);
  reissue(f, 0, 0, 0, MICROBATCHES);
  extra = begin_extra(f, 0, 0);
  arrive(f, 1);
  assert_false(steps_is_wanted(&f->run, &extra));
  expect_no_task(f); /* the version that is read is not left, and nothing else of it is wanted */
  steps_end(&f->run, &extra, false);
  assert_int_equal(f->run.weights->current->version, 1);
  expect_no_task(f);
  assign(f, 0, 1);
  work = begin(f, 1, 0);
  assert_false(work.is_extra);
  steps_end(&f->run, &work, true);
}

static void work_ahead_makes_way_for_extra_tasks(void **state) {
  struct fixture *f = *state;
  struct work work, ahead, extra;
  join(f, 0, (struct task_range){0, 1});
  arrive(f, 0);
  work = begin(f, 0, 0);
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  ahead = begin(f, 1, 0);
  reissue(f, 0, 0, 1, 2);
  assert_true(steps_should_yield(&f->run, &ahead));
  extra = begin_extra(f, 0, 1);
  assert_false(steps_should_yield(&f->run, &ahead)); /* another has it */
  steps_end(&f->run, &extra, true);
  steps_end(&f->run, &ahead, true);
}

/* Version 0 is not evaluated, and nothing is trained from the last. */
static void what_the_plan_has_not_is_not_computed(void **state) {
  struct fixture *f = *state;
  join(f, 0, (struct task_range){0, 0});
  arrive(f, 0);
  reissue(f, 0, 0, MICROBATCHES, UINT32_MAX);
  expect_no_task(f);
  for (uint64_t version = 1; version <= STEPS; version++)
    arrive(f, version);
  reissue(f, 0, STEPS, 0, UINT32_MAX);
  expect_no_task(f);
}

static void microbatches_of_a_sum_that_overflowed_are_extra_tasks(void **state) {
  struct fixture *f = *state;
  struct work extra;
  join(f, 0, (struct task_range){0, 0});
  arrive(f, 0);
  steps_compute_alone(&f->run, 1, (struct tree_node){2, 1}); /* of another step */
  expect_no_task(f);
  steps_compute_alone(&f->run, 0, (struct tree_node){2, 1});
  extra = begin_extra(f, 0, 2);
  steps_end(&f->run, &extra, true);
  extra = begin_extra(f, 0, 3);
  steps_end(&f->run, &extra, true);
  steps_compute_alone(&f->run, 0, (struct tree_node){2, 1}); /* of another block */
  expect_no_task(f);
}

static void drops_do_not_count_for_who_follows(void **state) {
  struct fixture *f = *state;
  struct transfer_item item = {.kind = TRANSFER_PULL, .version = 1};
  struct err err;
  f->run.is_muted = true;
  f->run.share.follows = true;
  err_set(&err, ERR_DROPPED, "that version is no more");
  for (int i = 0; i < 100; i++) {
    receipt_failed(&f->run, &item, &err);
    assert_true(f->run.must_rejoin);
    f->run.must_rejoin = false;
  }
  assert_int_equal(f->run.phase, RUN_WORKING);
  f->run.share.follows = false;
  for (int i = 0; i < 100 && f->run.phase == RUN_WORKING; i++) {
    receipt_failed(&f->run, &item, &err);
    f->run.must_rejoin = false;
  }
  assert_int_equal(f->run.phase, RUN_FAILED);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(the_next_version_is_computed_ahead_and_pushed_once_it_is_complete),
      TEST(work_ahead_makes_way_for_what_a_lost_worker_left),
      TEST(a_dropped_task_that_went_to_another_worker_holds_no_part_back),
      TEST(nothing_is_computed_from_a_held_version_before_the_hold_is_raised),
      TEST(a_hold_is_too_late_for_a_version_whose_tasks_are_assigned),
      TEST(a_hold_at_the_present_version_does_not_keep_its_tasks_from_another_share),
      TEST(in_a_group_sums_go_through_it_and_rows_and_pulls_do_not),
      TEST(a_version_that_is_read_for_a_group_is_not_written_over),
      TEST(extra_tasks_of_the_present_step_come_before_our_own),
      TEST(an_order_for_a_version_to_come_is_kept_and_one_for_another_is_void),
      TEST(extra_tasks_are_void_when_their_step_is_over),
      TEST(work_ahead_makes_way_for_extra_tasks),
      TEST(what_the_plan_has_not_is_not_computed),
      TEST(microbatches_of_a_sum_that_overflowed_are_extra_tasks),
      TEST(drops_do_not_count_for_who_follows),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A worker's steps in a mode whose gradients are late: a row of this test's own, which nothing but its
   answers tells from the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/worker/steps_doubles.h"
#include "tests/support/worker/steps_fixture.h"

enum { LAG = 2, LAST = 6 };

static uint64_t late_version(const Weir__TrainSpec *train, uint64_t step) {
  (void)train;
  return step > LAG ? step - LAG : 0;
}

static uint64_t late_answer(const Weir__TrainSpec *train, uint64_t wanted, uint64_t newest) {
  (void)train, (void)newest;
  return wanted;
}

static struct mode_bounds late_bounds(const Weir__TrainSpec *train) {
  (void)train;
  return (struct mode_bounds){.versions = 2 * LAG + 2, .rounds = LAG + 1, .sums = LAG + 1, .sets = LAG + 2};
}

static const struct mode_def late = {.name = "late",
                                     .version = late_version,
                                     .answer = late_answer,
                                     .oldest = late_version,
                                     .bounds = late_bounds};

static int setup(void **state) {
  struct mode mode = {.def = &late};
  *state = steps_fixture_new(&mode, LAST);
  return 0;
}

static int teardown(void **state) {
  steps_fixture_free(*state);
  return 0;
}

static const struct task_range first = {0, 1};

/* The first microbatch of the step: computed from that version, and pushed. */
static void compute(struct fixture *f, uint64_t step, uint64_t version) {
  struct work work = begin(f, step, 0);
  assert_int_equal(work.version, version);
  assert_true(steps_is_current(&f->run, &work));
  deliver(f, &work);
  steps_end(&f->run, &work, true);
  assert_int_equal(sent_parts(f, step, 0, 0), 1);
}

static void expect_no_task(struct fixture *f) {
  struct work work;
  assert_false(steps_begin(&f->run, NULL, &work));
}

static bool has_waited(const struct fixture *f, uint64_t step) {
  for (int i = 0; i < f->n_sent; i++)
    if (f->sent[i].kind == TRANSFER_PUSH && f->sent[i].step == step && f->sent[i].block == 0)
      return f->sent[i].wait;
  return false;
}

static int pulls(const struct fixture *f, uint64_t version) {
  int n = 0;
  for (int i = 0; i < f->n_sent; i++)
    n += f->sent[i].kind == TRANSFER_PULL && f->sent[i].version == version;
  return n;
}

static void the_first_steps_share_a_version_and_the_last_of_them_brings_the_next(void **state) {
  struct fixture *f = *state;
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step <= LAG; step++) {
    compute(f, step, 0);
    assert_int_equal(has_waited(f, step), step == LAG);
  }
  for (uint64_t version = 1; version + LAG < LAST; version++) {
    struct work ahead = begin(f, version + LAG, 0);
    assert_false(steps_is_current(&f->run, &ahead));
    arrive(f, version);
    assert_true(steps_is_current(&f->run, &ahead));
    deliver(f, &ahead);
    steps_end(&f->run, &ahead, true);
    assert_true(has_waited(f, version + LAG));
  }
  assert_int_equal(pulls(f, 1), 0);
}

/* Nothing is trained after the last step, and the versions that are still to come are pulled. */
static void the_last_versions_come_without_a_step(void **state) {
  struct fixture *f = *state;
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step < LAST; step++) {
    if (step > LAG)
      arrive(f, step - LAG);
    compute(f, step, late_version(NULL, step));
  }
  for (uint64_t version = LAST - LAG; version <= LAST; version++) {
    expect_no_task(f);
    arrive(f, version);
    assert_int_equal(pulls(f, version), version == LAST - LAG ? 0 : BLOCKS);
  }
  assert_int_equal(f->run.weights->current->version, LAST);
  assert_int_equal(pulls(f, LAST + 1), 0);
}

static void microbatches_of_a_lost_worker_are_computed_from_the_very_same_versions(void **state) {
  struct fixture *f = *state;
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step < 2 + LAG; step++) {
    if (step > LAG)
      arrive(f, step - LAG);
    compute(f, step, late_version(NULL, step));
  }
  assign(f, 0, 2);
  for (uint64_t step = 1; step < 2 + LAG; step++) { /* version 1 is here: step 0 is over */
    struct work work = begin(f, step, 1);
    assert_int_equal(work.version, late_version(NULL, step));
    deliver(f, &work);
    steps_end(&f->run, &work, true);
    assert_int_equal(sent_parts(f, step, 1, 0), 1);
  }
}

static void work_ahead_makes_way_for_an_earlier_step(void **state) {
  struct fixture *f = *state;
  struct work ahead;
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step <= LAG; step++)
    compute(f, step, 0);
  ahead = begin(f, LAG + 1, 0);
  assert_false(steps_should_yield(&f->run, &ahead));
  assign(f, 0, 2);
  assert_true(steps_should_yield(&f->run, &ahead));
  steps_end(&f->run, &ahead, false);
}

static void who_joins_begins_with_the_version_of_the_lowest_step(void **state) {
  struct fixture *f = *state;
  join(f, 4, first);
  arrive(f, 4 - LAG);
  compute(f, 4, 4 - LAG);
  arrive(f, 5 - LAG); /* there already, though step 4 is not over */
  compute(f, 5, 5 - LAG);
  for (uint64_t version = 4; version <= LAST; version++)
    arrive(f, version);
  expect_no_task(f);
}

static void a_held_run_has_the_versions_up_to_its_hold_and_goes_on(void **state) {
  struct fixture *f = *state;
  f->run.hold = 3;
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step < 3; step++)
    compute(f, step, 0);
  expect_no_task(f);
  for (uint64_t version = 1; version <= 3; version++)
    arrive(f, version);
  expect_no_task(f);
  assert_int_equal(pulls(f, 4), 0);
  f->run.hold = 0;
  assign(f, 0, 1);
  for (uint64_t step = 3; step < LAST; step++) /* of versions that were kept */
    compute(f, step, step - LAG);
}

/* Its task is computed from version 0, whose place no other version takes yet. */
static void a_task_whose_step_is_over_ends_like_any(void **state) {
  struct fixture *f = *state;
  struct work late_task;
  join(f, 0, first);
  arrive(f, 0);
  late_task = begin(f, 0, 0);
  arrive(f, 1);
  assert_false(steps_is_wanted(&f->run, &late_task));
  assert_int_equal(f->run.first_step, 1);
  steps_end(&f->run, &late_task, false);
  compute(f, 1, 0);
}

static void extra_tasks_are_of_any_step_that_is_not_over(void **state) {
  struct fixture *f = *state;
  struct work extra;
  join(f, 0, (struct task_range){0, 0});
  arrive(f, 0);
  steps_compute_alone(&f->run, 1, (struct tree_node){2, 0});
  extra = begin(f, 1, 2);
  assert_true(extra.is_extra);
  steps_end(&f->run, &extra, true);
  steps_compute_alone(&f->run, LAG + 1, (struct tree_node){2, 0}); /* its version is not here */
  expect_no_task(f);
}

/* A version that is evaluated waits for parts of steps whose weights are here. */
static void what_need_not_wait_for_weights_comes_before_an_evaluation_that_does(void **state) {
  struct fixture *f = *state;
  struct plan *plan = &f->run.loaded.plan;
  struct work work;
  steps_fini(&f->run);
  plan->eval_samples = plan->eval_chunks = 1;
  plan->eval_every_steps = 1;
  steps_init(&f->run, &f->run.mode);
  f->run.share.chunks = (struct task_range){0, 1};
  join(f, 0, first);
  arrive(f, 0);
  for (uint64_t step = 0; step <= LAG; step++)
    compute(f, step, 0);
  assert_true(steps_begin(&f->run, NULL, &work));
  assert_int_equal(work.kind, WORK_CHUNK);
  assert_int_equal(work.step, 1);
  assert_false(steps_is_current(&f->run, &work));
  arrive(f, 1);
  assert_true(steps_is_current(&f->run, &work));
  steps_end(&f->run, &work, true);
}

static void order_extra(struct fixture *f, uint64_t step, uint32_t microbatch) {
  Weir__Reissue order = WEIR__REISSUE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  range.begin = microbatch;
  range.end = microbatch + 1;
  order.run = (char *)"test";
  order.step = step;
  order.microbatches = ranges;
  order.n_microbatches = 1;
  steps_reissue(&f->run, &order);
}

static void expect_extra(struct fixture *f, uint64_t step, uint32_t microbatch) {
  struct work extra = begin(f, step, microbatch);
  assert_true(extra.is_extra);
  steps_end(&f->run, &extra, true);
}

static void orders_of_several_steps_are_kept_until_these_are_here(void **state) {
  struct fixture *f = *state;
  join(f, 0, (struct task_range){0, 0});
  order_extra(f, LAG, 1);
  order_extra(f, LAG + 1, 1);
  order_extra(f, LAG + 2, 2);
  order_extra(f, LAG + 2, 3); /* in the place of the one before */
  expect_no_task(f);
  arrive(f, 0);
  expect_extra(f, LAG, 1);
  expect_no_task(f);
  arrive(f, 1);
  expect_extra(f, LAG + 1, 1);
  expect_no_task(f);
  arrive(f, 2);
  expect_extra(f, LAG + 2, 3);
  expect_no_task(f);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(the_first_steps_share_a_version_and_the_last_of_them_brings_the_next),
      TEST(the_last_versions_come_without_a_step),
      TEST(microbatches_of_a_lost_worker_are_computed_from_the_very_same_versions),
      TEST(work_ahead_makes_way_for_an_earlier_step),
      TEST(who_joins_begins_with_the_version_of_the_lowest_step),
      TEST(a_held_run_has_the_versions_up_to_its_hold_and_goes_on),
      TEST(a_task_whose_step_is_over_ends_like_any),
      TEST(extra_tasks_are_of_any_step_that_is_not_over),
      TEST(what_need_not_wait_for_weights_comes_before_an_evaluation_that_does),
      TEST(orders_of_several_steps_are_kept_until_these_are_here),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which extra tasks are begun, when orders replace each other, and come again, and are nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "worker/train/run/extras.h"

enum { N = 8, RANGES_MAX = N + 1 };

static int setup(void **state) {
  struct extras *extras = mem_new(sizeof *extras);
  extras_init(extras, N);
  *state = extras;
  return 0;
}

static int teardown(void **state) {
  extras_fini(*state);
  free(*state);
  return 0;
}

static void order(struct extras *extras, const struct task_range *ranges, size_t n) {
  Weir__Range made[RANGES_MAX], *list[RANGES_MAX];
  assert_in_range(n, 0, RANGES_MAX);
  for (size_t i = 0; i < n; i++) {
    weir__range__init(&made[i]);
    made[i].begin = ranges[i].begin;
    made[i].end = ranges[i].end;
    list[i] = &made[i];
  }
  extras_order(extras, list, n);
}

static void order_range(struct extras *extras, uint32_t begin, uint32_t end) {
  order(extras, &(struct task_range){begin, end}, 1);
}

/* The next that is begun is this one. */
static void expect_begun(struct extras *extras, uint32_t index) {
  uint32_t begun = N;
  assert_true(extras_are_owed(extras));
  assert_true(extras_begin(extras, &begun));
  assert_int_equal(begun, index);
}

static void expect_nothing(struct extras *extras) {
  uint32_t index;
  assert_false(extras_are_owed(extras));
  assert_false(extras_begin(extras, &index));
}

static void what_is_ordered_is_begun_once(void **state) {
  struct extras *extras = *state;
  expect_nothing(extras);
  order(extras, (struct task_range[]){{6, 7}, {1, 3}}, 2);
  expect_begun(extras, 1);
  expect_begun(extras, 2);
  extras_end(extras, 1, true);
  expect_begun(extras, 6);
  extras_end(extras, 2, true);
  extras_end(extras, 6, true);
  expect_nothing(extras);
}

static void more_ranges_than_tasks_are_ignored(void **state) {
  struct task_range ranges[N + 1] = {[N] = {5, 6}};
  struct extras *extras = *state;
  for (int i = 0; i < N; i++)
    ranges[i] = (struct task_range){2, 3};
  order(extras, ranges, N + 1);
  expect_begun(extras, 2);
  expect_nothing(extras);
}

static void a_newer_order_takes_back_what_has_not_begun(void **state) {
  struct extras *extras = *state;
  order_range(extras, 0, 3);
  expect_begun(extras, 0);
  order_range(extras, 5, 6);
  expect_begun(extras, 5);
  expect_nothing(extras);
  extras_end(extras, 0, true);
  extras_end(extras, 5, true);
  order(extras, NULL, 0);
  expect_nothing(extras);
}

/* What it pushed is doubted, maybe. Nobody else computes it at the same time. */
static void what_is_ordered_again_is_computed_again(void **state) {
  struct extras *extras = *state;
  order_range(extras, 2, 3);
  expect_begun(extras, 2);
  order_range(extras, 2, 3);
  expect_nothing(extras);
  extras_end(extras, 2, true);
  expect_begun(extras, 2);
  extras_end(extras, 2, true);
  expect_nothing(extras);
  order_range(extras, 2, 3);
  expect_begun(extras, 2);
}

static void what_a_worker_wants_itself_outlives_orders_and_is_computed_once(void **state) {
  struct extras *extras = *state;
  assert_true(extras_add(extras, (struct task_range){0, 2}));
  order_range(extras, 7, 8);
  expect_begun(extras, 0);
  extras_end(extras, 0, true);
  assert_false(
      extras_add(extras, (struct task_range){0, 2})); /* another block's sum of them overflows, too */
  expect_begun(extras, 1);
  assert_true(extras_add(extras, (struct task_range){0, 4}));
  expect_begun(extras, 2);
  expect_begun(extras, 3);
  expect_begun(extras, 7);
  expect_nothing(extras);
}

static void what_was_dropped_may_be_wanted_again(void **state) {
  struct extras *extras = *state;
  extras_add(extras, (struct task_range){0, 1});
  expect_begun(extras, 0);
  extras_end(extras, 0, false);
  expect_nothing(extras);
  assert_true(extras_add(extras, (struct task_range){0, 1}));
}

static void another_version_wants_nothing(void **state) {
  struct extras *extras = *state;
  order_range(extras, 0, N);
  extras_add(extras, (struct task_range){0, N});
  extras_clear(extras);
  expect_nothing(extras);
  assert_true(extras_add(extras, (struct task_range){3, 4}));
  expect_begun(extras, 3);
}

static void what_does_not_exist_is_ignored(void **state) {
  struct extras *extras = *state;
  order(extras, (struct task_range[]){{N, N + 1}, {5, 2}, {UINT32_MAX - 1, UINT32_MAX}, {UINT32_MAX, 0}}, 4);
  expect_nothing(extras);
  order_range(extras, 0, UINT32_MAX);
  for (uint32_t i = 0; i < N; i++)
    expect_begun(extras, i);
  expect_nothing(extras);
  assert_false(extras_add(extras, (struct task_range){N, UINT32_MAX}));
}

static void where_there_are_no_tasks_none_is_begun(void **state) {
  struct extras none;
  (void)state;
  extras_init(&none, 0);
  order_range(&none, 0, UINT32_MAX);
  extras_add(&none, (struct task_range){0, 1});
  expect_nothing(&none);
  extras_fini(&none);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(what_is_ordered_is_begun_once),
      TEST(more_ranges_than_tasks_are_ignored),
      TEST(a_newer_order_takes_back_what_has_not_begun),
      TEST(what_is_ordered_again_is_computed_again),
      TEST(what_a_worker_wants_itself_outlives_orders_and_is_computed_once),
      TEST(what_was_dropped_may_be_wanted_again),
      TEST(another_version_wants_nothing),
      TEST(what_does_not_exist_is_ignored),
      TEST(where_there_are_no_tasks_none_is_begun),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}

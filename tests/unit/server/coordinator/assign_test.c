/* Who computes what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/coordinator/core/assign.h"

enum { WORKERS_MAX = 12 };

static void assert_covers(const struct range *ranges, int n, uint32_t items) {
  uint32_t at = 0;
  for (int i = 0; i < n; i++) {
    assert_int_equal(ranges[i].begin, at);
    assert_true(ranges[i].end >= ranges[i].begin);
    at = ranges[i].end;
  }
  assert_int_equal(at, items);
}

static void one_worker_computes_everything(void **state) {
  uint32_t executors[] = {3};
  struct range ranges[1];
  (void)state;
  assign_ranges(executors, 1, 8, ranges);
  assert_int_equal(ranges[0].begin, 0);
  assert_int_equal(ranges[0].end, 8);
}

static void work_is_shared_in_proportion_to_executors(void **state) {
  uint32_t executors[] = {1, 2, 1};
  struct range ranges[3];
  (void)state;
  assign_ranges(executors, 3, 8, ranges);
  assert_int_equal(ranges[0].end - ranges[0].begin, 2);
  assert_int_equal(ranges[1].end - ranges[1].begin, 4);
  assert_int_equal(ranges[2].end - ranges[2].begin, 2);
}

static void more_workers_than_work_leaves_some_without(void **state) {
  uint32_t executors[] = {1, 1, 1, 1, 1};
  struct range ranges[5];
  int empty = 0;
  (void)state;
  assign_ranges(executors, 5, 2, ranges);
  assert_covers(ranges, 5, 2);
  for (int i = 0; i < 5; i++) {
    assert_true(ranges[i].end - ranges[i].begin <= 1);
    empty += ranges[i].begin == ranges[i].end;
  }
  assert_int_equal(empty, 3);
}

static void a_worker_that_claims_no_executor_counts_as_one(void **state) {
  uint32_t executors[] = {0, 1};
  struct range ranges[2];
  (void)state;
  assign_ranges(executors, 2, 4, ranges);
  assert_int_equal(ranges[0].end, 2);
}

static void no_work_is_no_range(void **state) {
  uint32_t executors[] = {UINT32_MAX, UINT32_MAX};
  struct range ranges[2];
  (void)state;
  assign_ranges(executors, 2, 0, ranges);
  assert_covers(ranges, 2, 0);
  assign_ranges(executors, 2, UINT32_MAX, ranges);
  assert_covers(ranges, 2, UINT32_MAX);
}

/* The rounds of a step are those of its slowest worker: ceil(range / executors) must reach the bound
   ceil(items / all executors). */
static void any_mixture_covers_all_in_the_fewest_rounds(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 2000; trial++) {
    uint32_t executors[WORKERS_MAX], total = 0;
    struct range ranges[WORKERS_MAX];
    int n = 1 + (int)(random_bits(trial, 0) % WORKERS_MAX);
    uint32_t items = (uint32_t)(random_bits(trial, 1) % 300), rounds;
    for (int i = 0; i < n; i++)
      total += executors[i] = 1 + (uint32_t)(random_bits(trial, 2 + (uint64_t)i) % 9);
    assign_ranges(executors, n, items, ranges);
    assert_covers(ranges, n, items);
    rounds = (items + total - 1) / total;
    for (int i = 0; i < n; i++)
      assert_true(ranges[i].end - ranges[i].begin <= rounds * executors[i]);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_worker_computes_everything),
      cmocka_unit_test(work_is_shared_in_proportion_to_executors),
      cmocka_unit_test(more_workers_than_work_leaves_some_without),
      cmocka_unit_test(a_worker_that_claims_no_executor_counts_as_one),
      cmocka_unit_test(no_work_is_no_range),
      cmocka_unit_test(any_mixture_covers_all_in_the_fewest_rounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Who computes what. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "server/coordinator/shares/assign.h"

enum { WORKERS_MAX = 12 };

/* Of executors that are equally fast, or of which nothing is known. */
static void assign_equal(const uint32_t *executors, int n, uint32_t items, struct range *ranges) {
  struct assign_worker workers[WORKERS_MAX];
  struct range unknown[WORKERS_MAX];
  for (int i = 0; i < n; i++)
    workers[i] = (struct assign_worker){executors[i], 0.3 * (executors[i] ? executors[i] : 1)};
  assign_ranges(workers, n, items, ranges);
  for (int i = 0; i < n; i++)
    workers[i].speed = i % 2 ? 0 : (double)NAN;
  assign_ranges(workers, n, items, unknown);
  assert_memory_equal(unknown, ranges, (size_t)n * sizeof *ranges);
}

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
  assign_equal(executors, 1, 8, ranges);
  assert_int_equal(ranges[0].begin, 0);
  assert_int_equal(ranges[0].end, 8);
}

static void work_is_shared_in_proportion_to_executors(void **state) {
  uint32_t executors[] = {1, 2, 1};
  struct range ranges[3];
  (void)state;
  assign_equal(executors, 3, 8, ranges);
  assert_int_equal(ranges[0].end - ranges[0].begin, 2);
  assert_int_equal(ranges[1].end - ranges[1].begin, 4);
  assert_int_equal(ranges[2].end - ranges[2].begin, 2);
}

static void more_workers_than_work_leaves_some_without(void **state) {
  uint32_t executors[] = {1, 1, 1, 1, 1};
  struct range ranges[5];
  int empty = 0;
  (void)state;
  assign_equal(executors, 5, 2, ranges);
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
  assign_equal(executors, 2, 4, ranges);
  assert_int_equal(ranges[0].end, 2);
}

static void no_work_is_no_range(void **state) {
  uint32_t executors[] = {UINT32_MAX, UINT32_MAX};
  struct range ranges[2];
  (void)state;
  assign_equal(executors, 2, 0, ranges);
  assert_covers(ranges, 2, 0);
  assign_equal(executors, 2, UINT32_MAX, ranges);
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
    assign_equal(executors, n, items, ranges);
    assert_covers(ranges, n, items);
    rounds = (items + total - 1) / total;
    for (int i = 0; i < n; i++)
      assert_true(ranges[i].end - ranges[i].begin <= rounds * executors[i]);
  }
}

/* The time of the best cut: every way of giving `items` to workers from i on. */
static double best_seconds(const struct assign_worker *workers, int n, uint32_t items) {
  double best = INFINITY;
  if (n == 0)
    return items ? INFINITY : 0;
  for (uint32_t take = 0; take <= items; take++) {
    bool is_able = take == 0 || workers->speed > 0;
    double mine = is_able ? assign_seconds(workers, 1, &(struct range){0, take}) : INFINITY;
    double rest = mine < best ? best_seconds(workers + 1, n - 1, items - take) : INFINITY;
    double slower = mine > rest ? mine : rest;
    best = slower < best ? slower : best;
  }
  return best;
}

/* Speeds from a twentieth to twenty, a few of them none. */
static void the_slowest_worker_is_done_as_early_as_in_any_other_cut(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 2000; trial++) {
    struct assign_worker workers[4];
    struct range ranges[4];
    int n = 1 + (int)(random_bits(trial, 0) % 4), able = 0;
    uint32_t items = 1 + (uint32_t)(random_bits(trial, 1) % 16);
    double best;
    for (int i = 0; i < n; i++) {
      uint64_t dice = random_bits(trial, 2 + (uint64_t)i);
      workers[i].executors = 1 + (uint32_t)(dice % 5);
      workers[i].speed = dice / 5 % 8 ? exp((double)(dice / 40 % 6000) / 1000 - 3) : 0;
      able += workers[i].speed > 0;
    }
    if (able == 0)
      continue;
    assign_ranges(workers, n, items, ranges);
    assert_covers(ranges, n, items);
    best = best_seconds(workers, n, items);
    assert_true(assign_seconds(workers, n, ranges) <= best * (1 + 1e-8));
    for (int i = 0; i < n; i++)
      assert_true(workers[i].speed > 0 || ranges[i].begin == ranges[i].end);
  }
}

static void a_worker_at_a_quarter_of_the_others_speed_gets_what_it_can_do_beside_them(void **state) {
  struct assign_worker workers[] = {{1, 1}, {1, 1}, {1, 1}, {1, 0.25}};
  const struct {
    uint32_t items;
    double seconds;
    uint32_t last;
  } cases[] = {{8, 3, 0}, {12, 4, 1}, {16, 5, 1}};
  struct range ranges[4];
  (void)state;
  for (int i = 0; i < 3; i++) {
    assign_ranges(workers, 4, cases[i].items, ranges);
    assert_covers(ranges, 4, cases[i].items);
    assert_true(assign_seconds(workers, 4, ranges) == cases[i].seconds);
    assert_int_equal(ranges[3].end - ranges[3].begin, cases[i].last);
  }
}

static void executors_work_in_whole_rounds(void **state) {
  struct assign_worker workers[] = {{4, 4}, {1, 2}};
  struct range ranges[2];
  (void)state;
  assign_ranges(workers, 2, 6, ranges); /* a round of four, and two in the same time */
  assert_int_equal(ranges[0].end, 4);
  assert_true(assign_seconds(workers, 2, ranges) == 1);
  assert_true(assign_seconds(workers, 2, (struct range[]){{0, 5}, {5, 6}}) == 2);
}

static void whole_groups_are_nearest_to_what_was_cut(void **state) {
  static const struct {
    uint32_t items, group;
    struct range cut[3], wanted[3];
  } cases[] = {
      {16, 8, {{0, 9}, {9, 16}, {16, 16}}, {{0, 8}, {8, 16}, {16, 16}}},     /* two workers alike */
      {16, 4, {{0, 5}, {5, 11}, {11, 16}}, {{0, 4}, {4, 12}, {12, 16}}},     /* three, of four groups */
      {16, 8, {{0, 14}, {14, 16}, {16, 16}}, {{0, 16}, {16, 16}, {16, 16}}}, /* one that is slow */
      {16, 8, {{0, 5}, {5, 11}, {11, 16}}, {{0, 5}, {5, 11}, {11, 16}}},     /* more workers than groups */
      {10, 4, {{0, 3}, {3, 7}, {7, 10}}, {{0, 4}, {4, 8}, {8, 10}}},         /* the last group is smaller */
      {16, 1, {{0, 5}, {5, 11}, {11, 16}}, {{0, 5}, {5, 11}, {11, 16}}},
      {0, 4, {{0, 0}, {0, 0}, {0, 0}}, {{0, 0}, {0, 0}, {0, 0}}},
  };
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct range ranges[3];
    memcpy(ranges, cases[c].cut, sizeof ranges);
    assign_whole_groups(ranges, 3, cases[c].items, cases[c].group);
    assert_covers(ranges, 3, cases[c].items);
    for (int i = 0; i < 3; i++)
      if (ranges[i].begin != cases[c].wanted[i].begin || ranges[i].end != cases[c].wanted[i].end)
        fail_msg("case %zu: range %d is %u to %u", c, i, ranges[i].begin, ranges[i].end);
  }
}

static void speeds_that_are_none_or_beyond_all_measure_are_survived(void **state) {
  const double odd[] = {0, -1, (double)NAN, (double)INFINITY, -(double)INFINITY, 1e-308, 1e308, 5e-324};
  struct range ranges[3];
  (void)state;
  for (int a = 0; a < 8; a++)
    for (int b = 0; b < 8; b++) {
      struct assign_worker workers[] = {{UINT32_MAX, odd[a]}, {1, odd[b]}, {0, 1}};
      assign_ranges(workers, 3, 4096, ranges);
      assert_covers(ranges, 3, 4096);
      assign_ranges(workers, 2, UINT32_MAX, ranges);
      assert_covers(ranges, 2, UINT32_MAX);
      assert_true(assign_seconds(workers, 2, ranges) >= 0);
    }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_worker_computes_everything),
      cmocka_unit_test(whole_groups_are_nearest_to_what_was_cut),
      cmocka_unit_test(work_is_shared_in_proportion_to_executors),
      cmocka_unit_test(more_workers_than_work_leaves_some_without),
      cmocka_unit_test(a_worker_that_claims_no_executor_counts_as_one),
      cmocka_unit_test(no_work_is_no_range),
      cmocka_unit_test(any_mixture_covers_all_in_the_fewest_rounds),
      cmocka_unit_test(the_slowest_worker_is_done_as_early_as_in_any_other_cut),
      cmocka_unit_test(a_worker_at_a_quarter_of_the_others_speed_gets_what_it_can_do_beside_them),
      cmocka_unit_test(executors_work_in_whole_rounds),
      cmocka_unit_test(speeds_that_are_none_or_beyond_all_measure_are_survived),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Microbatches that come late are computed elsewhere, too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_reissue.h"

enum { S1 = 1, S2, W1, W2, W3, W4, ALL = (1 << MICROBATCHES) - 1, EVAL_SAMPLES = 400 };
static const char RUN[] = "mlp-aaaaaa";

static void load_all(struct core_fixture *f, uint64_t last_worker) {
  user_submits(f, RUN, 1, 0);
  for (uint64_t key = W1; key <= last_worker; key++) {
    Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
    loaded.run = (char *)RUN;
    loaded.train_samples = SAMPLES;
    loaded.eval_samples = EVAL_SAMPLES;
    loaded.dataset_sha256 = "data";
    loaded.probe_sha256 = "probe";
    member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  }
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* Two servers, and workers with so many executors. */
static void start(struct core_fixture *f, const uint32_t *executors, uint64_t n) {
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  for (uint64_t i = 0; i < n; i++)
    worker_joins(f, W1 + i, executors[i]);
  load_all(f, W1 + n - 1);
}

static void start_equal(struct core_fixture *f, uint64_t n) {
  start(f, (const uint32_t[]){1, 1, 1, 1}, n);
}

static uint32_t share_of(const struct core_fixture *f, uint64_t key) {
  return (1u << f->told[key].end) - (1u << f->told[key].begin);
}

static int bits(uint32_t mask) {
  return __builtin_popcount(mask);
}

static void late_microbatches_are_given_to_those_that_have_done_theirs(void **state) {
  struct core_fixture *f = *state;
  uint64_t view;
  start_equal(f, 2);
  view = f->told[W2].view;
  server_misses(f, S1, 3, share_of(f, W1), 0.5);
  assert_int_equal(f->told[W2].reissue_step, 3);
  assert_int_equal(f->told[W2].reissue_microbatches, share_of(f, W1));
  assert_int_equal(f->told[W2].reissue_chunks, 0);
  assert_int_equal(f->told[W1].reissues, 0);
  assert_int_equal(f->told[W2].view, view); /* beside the view */
}

static void they_are_shared_by_executors(void **state) {
  struct core_fixture *f = *state;
  start(f, (const uint32_t[]){4, 1, 3}, 3);
  assert_int_equal(bits(share_of(f, W1)), 4);
  server_misses(f, S1, 3, share_of(f, W1), 0.5);
  assert_int_equal(bits(f->told[W2].reissue_microbatches), 1);
  assert_int_equal(bits(f->told[W3].reissue_microbatches), 3);
  assert_int_equal(f->told[W2].reissue_microbatches | f->told[W3].reissue_microbatches, share_of(f, W1));
}

static void they_are_shared_by_measured_speed(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 3);
  for (uint64_t second = 1; second <= 6; second++) {
    f->now_ms += 1000;
    member_counts(f, W1, RUN, 20 * second, (double)second);
    member_counts(f, W2, RUN, 10 * second, (double)second);
    member_counts(f, W3, RUN, 40 * second, (double)second);
  }
  assert_int_equal(bits(share_of(f, W1)), 2);
  server_misses(f, S1, 3, share_of(f, W1), 0.5);
  assert_int_equal(f->told[W2].reissues, 0);
  assert_int_equal(f->told[W3].reissue_microbatches, share_of(f, W1));
}

static void each_has_one_duplicate_until_that_is_late_itself(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 3);
  server_misses(f, S1, 3, 1, 0.5);
  assert_int_equal(f->told[W2].reissues + f->told[W3].reissues, 1);
  f->now_ms += 499;
  server_misses(f, S1, 3, 1, 1.0);
  server_misses(f, S2, 3, 1, 1.0);
  assert_int_equal(f->told[W2].reissues + f->told[W3].reissues, 1);
  f->now_ms += 1; /* as long as was waited when it was given */
  server_misses(f, S1, 3, 1, 1.0);
  assert_int_equal(f->told[W2].reissues, 1);
  assert_int_equal(f->told[W3].reissues, 1);
  server_misses(f, S1, 3, 3, 1.0); /* who was too slow is the last to be asked again */
  assert_int_equal(f->told[W2].reissues + f->told[W3].reissues, 3);
  assert_int_equal(f->told[W2].reissue_microbatches | f->told[W3].reissue_microbatches, 3);
  assert_int_equal(f->told[W1].reissues, 0);
}

static void what_a_worker_had_that_is_gone_is_given_to_another(void **state) {
  struct core_fixture *f = *state;
  uint64_t helper;
  start_equal(f, 3);
  server_misses(f, S1, 3, 1, 0.5);
  helper = f->told[W2].reissues ? W2 : W3;
  member_leaves(f, helper);
  server_misses(f, S1, 3, 1, 0.6);
  assert_int_equal(f->told[W2].reissues, 1);
  assert_int_equal(f->told[W3].reissues, 1);
}

static void an_order_holds_all_that_a_worker_still_has(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 2);
  server_misses(f, S1, 3, 1, 0.5);
  server_misses(f, S2, 3, 2, 0.5);
  assert_int_equal(f->told[W2].reissue_microbatches, 3);
  f->now_ms += 5000; /* nobody has missed those for long: they are there */
  server_misses(f, S2, 3, 4, 0.5);
  assert_int_equal(f->told[W2].reissue_microbatches, 4);
}

static void an_only_worker_computes_for_itself(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 1);
  server_misses(f, S1, 3, 6, 0.5);
  assert_int_equal(f->told[W1].reissue_microbatches, 6);
}

static void no_member_of_a_group_computes_for_another(void **state) {
  struct core_fixture *f = *state;
  f->collective = "shm";
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  worker_joins_on(f, W1, "a", "cpu");
  worker_joins_on(f, W2, "a", "cpu");
  worker_joins_on(f, W3, "b", "cpu");
  load_all(f, W3);
  assert_true(f->told[W1].group && f->told[W1].group == f->told[W2].group);
  server_misses(f, S1, 3, share_of(f, W1), 0.5);
  assert_int_equal(f->told[W3].reissue_microbatches, share_of(f, W1));
  assert_int_equal(f->told[W2].reissues, 0);
}

static void a_group_that_is_alone_computes_for_itself(void **state) {
  struct core_fixture *f = *state;
  f->collective = "shm";
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  worker_joins_on(f, W1, "a", "cpu");
  worker_joins_on(f, W2, "a", "cpu");
  load_all(f, W2);
  server_misses(f, S1, 3, share_of(f, W1), 0.5);
  assert_int_equal(f->told[W1].reissue_microbatches | f->told[W2].reissue_microbatches, share_of(f, W1));
}

static void chunks_of_an_evaluation_are_given_likewise(void **state) {
  struct core_fixture *f = *state;
  Weir__Late late = WEIR__LATE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *list = &range;
  start_equal(f, 2);
  range.end = 1;
  late.run = (char *)RUN;
  late.step = STEPS; /* of the last version: there is no microbatch to compute at it */
  late.microbatches = late.chunks = &list;
  late.n_microbatches = late.n_chunks = 1;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  assert_int_equal(f->told[W2].reissue_step, STEPS);
  assert_int_equal(f->told[W2].reissue_chunks, 1);
  assert_int_equal(f->told[W2].reissue_microbatches, 0);
  assert_int_equal(f->told[W1].reissues, 0);
}

/* A server that has nothing of a step cannot know that others are behind. */
static void the_step_is_that_of_the_server_that_is_behind(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 2);
  server_misses(f, S1, 3, 1, 0.5);
  server_misses(f, S2, 4, ALL, 0.5);
  assert_int_equal(f->told[W2].reissue_step, 3);
  assert_int_equal(f->told[W1].reissues, 0);
  server_misses(f, S2, 4, share_of(f, W1), 0.5); /* it has what only a worker with all of step 4 can push */
  assert_int_equal(f->told[W2].reissue_step, 4);
  server_misses(f, S1, 3, 1, 0.5); /* an old message */
  assert_int_equal(f->told[W2].reissue_step, 4);
}

static void a_step_of_which_nothing_came_is_given_when_no_other_is_late_any_more(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 2);
  server_misses(f, S1, 3, 1, 0.5);
  f->now_ms += 2000;
  server_misses(f, S2, 4, ALL, 0.5);
  assert_int_equal(f->told[W2].reissue_step, 4);
  server_misses(f, S1, 3, 1, 2.5); /* it was late all the same */
  assert_int_equal(f->told[W2].reissue_step, 3);
}

static void nothing_is_late_in_an_incarnation_before_it_has_begun(void **state) {
  struct core_fixture *f = *state;
  start_equal(f, 2);
  server_misses(f, S1, 3, 1, 0.5);
  member_leaves(f, S2);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  f->incarnation = 1;
  server_misses(f, S1, 3, 2, 0.5);
  assert_int_equal(f->told[W2].reissue_microbatches, 1);
  server_loads(f, S1, RUN);
  server_misses(f, S1, 0, 2, 0.5);
  assert_int_equal(f->told[W2].reissue_step, 0);
  assert_int_equal(f->told[W2].reissue_microbatches, 2);
}

static void nonsense_is_ignored(void **state) {
  static const uint32_t ranges[][2] = {
      {3, 1}, {0, 0}, {UINT32_MAX, 0}, {8, UINT32_MAX}, {UINT32_MAX - 1, UINT32_MAX}};
  struct core_fixture *f = *state;
  Weir__Late late = WEIR__LATE__INIT;
  Weir__Range list[5], *items[5];
  start_equal(f, 2);
  for (int i = 0; i < 5; i++) {
    weir__range__init(&list[i]);
    list[i].begin = ranges[i][0];
    list[i].end = ranges[i][1];
    items[i] = &list[i];
  }
  late.run = (char *)RUN;
  late.microbatches = late.chunks = items;
  late.n_microbatches = late.n_chunks = 5;
  late.waited_seconds = NAN;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  server_misses(f, S1, STEPS + 1, 1, 0.5);
  server_misses(f, S1, UINT64_MAX, 1, 0.5);
  server_misses(f, W1, 3, 1, 0.5);
  f->incarnation = 7;
  server_misses(f, S1, 3, 1, 0.5);
  f->incarnation = 0;
  late.run = "nobody's";
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues, 0);
  late.run = (char *)RUN;
  list[0] = (Weir__Range){.base = list[0].base, .begin = 0, .end = UINT32_MAX}; /* what there is of it */
  late.waited_seconds = INFINITY;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_LATE, &late);
  assert_int_equal(f->told[W1].reissue_microbatches | f->told[W2].reissue_microbatches, ALL);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(late_microbatches_are_given_to_those_that_have_done_theirs),
      TEST(they_are_shared_by_executors),
      TEST(they_are_shared_by_measured_speed),
      TEST(each_has_one_duplicate_until_that_is_late_itself),
      TEST(what_a_worker_had_that_is_gone_is_given_to_another),
      TEST(an_order_holds_all_that_a_worker_still_has),
      TEST(an_only_worker_computes_for_itself),
      TEST(no_member_of_a_group_computes_for_another),
      TEST(a_group_that_is_alone_computes_for_itself),
      TEST(chunks_of_an_evaluation_are_given_likewise),
      TEST(the_step_is_that_of_the_server_that_is_behind),
      TEST(a_step_of_which_nothing_came_is_given_when_no_other_is_late_any_more),
      TEST(nothing_is_late_in_an_incarnation_before_it_has_begun),
      TEST(nonsense_is_ignored),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

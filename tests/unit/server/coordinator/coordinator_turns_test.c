/* More runs than workers: they take turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_run.h"

enum { RUNS_MAX = 8, TICK_MS = 100, MINUTE_MS = 60000, LONG = 100000 };

/* Runs "mlp-1" and so on, and how far they are. */
struct turns {
  struct core_fixture *f;
  int n_workers;
  uint64_t steps[RUNS_MAX];
  uint64_t had_ms[RUNS_MAX]; /* worker-milliseconds */
  const char *has[RUNS_MAX]; /* of each worker: the run that it computes; NULL: none */
  uint64_t loads[RUNS_MAX];  /* likewise: how often it was told to load one */
};

static const char *const names[RUNS_MAX] = {"mlp-1", "mlp-2", "mlp-3", "mlp-4",
                                            "mlp-5", "mlp-6", "mlp-7", "mlp-8"};

static struct turns turns_begin(struct core_fixture *f, int n_workers) {
  server_joins(f, S1);
  for (int i = 0; i < n_workers; i++)
    worker_joins(f, W1 + (uint64_t)i, 1);
  f->steps = LONG;
  return (struct turns){.f = f, .n_workers = n_workers};
}

static int run_number(const char *run) {
  int number = 0;
  while (strcmp(names[number], run) != 0)
    assert_true(++number < RUNS_MAX);
  return number;
}

/* Members load what they were told to. */
static void members_load(struct turns *turns) {
  struct core_fixture *f = turns->f;
  for (int i = 0; i < turns->n_workers; i++) {
    const struct told *told = &f->told[W1 + (uint64_t)i];
    if (turns->has[i] && strcmp(told->unload, turns->has[i]) == 0)
      turns->has[i] = NULL;
    if (told->loads == turns->loads[i])
      continue;
    turns->loads[i] = told->loads;
    turns->has[i] = names[run_number(told->load)];
    worker_loads(f, W1 + (uint64_t)i, turns->has[i]);
    server_loads(f, S1, turns->has[i]);
  }
}

static bool has_workers(const struct turns *turns, int run) {
  for (int i = 0; i < turns->n_workers; i++)
    if (turns->has[i] == names[run])
      return true;
  return false;
}

static void runs_step(struct turns *turns) {
  bool computes[RUNS_MAX];
  for (int run = 0; run < RUNS_MAX; run++)
    computes[run] = has_workers(turns, run);
  for (int run = 0; run < RUNS_MAX; run++)
    if (computes[run]) {
      reports_step(turns->f, S1, names[run], turns->steps[run]++);
      members_load(turns);
    }
}

/* Every run that has workers completes a step each step_ms. */
static void runs_train(struct turns *turns, uint64_t ms, uint64_t step_ms) {
  struct core_fixture *f = turns->f;
  for (uint64_t passed = 0; passed < ms; passed += TICK_MS) {
    for (int i = 0; i < turns->n_workers; i++) {
      if (turns->has[i])
        turns->had_ms[run_number(turns->has[i])] += TICK_MS;
      member_beats(f, W1 + (uint64_t)i);
    }
    member_beats(f, S1);
    time_passes(f, TICK_MS);
    members_load(turns);
    if ((passed + TICK_MS) % step_ms == 0)
      runs_step(turns);
  }
}

static void assert_within_a_tenth(double had, double expected) {
  if (had < 0.9 * expected || had > 1.1 * expected)
    fail_msg("it had workers for %.1f s, not %.1f", had / 1000, expected / 1000);
}

static void two_runs_have_one_worker_for_half_of_a_minute_each(void **state) {
  struct turns turns = turns_begin(*state, 1);
  user_submits(turns.f, names[0], 1, 0);
  runs_train(&turns, 1000, TICK_MS);
  user_submits(turns.f, names[1], 1, 0);
  assert_state(turns.f, names[1], WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info_of_run(turns.f, names[1]).message, "waiting for workers: 0 of 1; mlp-1 has 1");
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[0], MINUTE_MS / 2.);
  assert_within_a_tenth((double)turns.had_ms[1], MINUTE_MS / 2.);
  for (int run = 0; run < 2; run++)
    assert_string_equal(info_of_run(turns.f, names[run]).message, "takes turns with 1 other run");
  user_cancels(turns.f, names[1]);
  assert_string_equal(info_of_run(turns.f, names[0]).message, "");
}

static void turns_are_as_long_as_runs_weigh(void **state) {
  struct turns turns = turns_begin(*state, 1);
  user_submits(turns.f, names[0], 1, 0);
  user_submits(turns.f, names[1], 1, 0);
  user_sets(turns.f, names[1], "workers.weight=3");
  runs_train(&turns, 2 * MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[0], MINUTE_MS / 2.);
  assert_within_a_tenth((double)turns.had_ms[1], MINUTE_MS * 3 / 2.);
}

static void three_runs_share_two_workers_evenly(void **state) {
  struct turns turns = turns_begin(*state, 2);
  for (int run = 0; run < 3; run++)
    user_submits(turns.f, names[run], 1, 0);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  for (int run = 0; run < 3; run++)
    assert_within_a_tenth((double)turns.had_ms[run], MINUTE_MS * 2 / 3.);
}

static void a_worker_more_than_runs_goes_round(void **state) {
  struct turns turns = turns_begin(*state, 3);
  user_submits(turns.f, names[0], 1, 0);
  user_submits(turns.f, names[1], 1, 0);
  runs_train(&turns, 2 * MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[0], 3. * MINUTE_MS);
  assert_within_a_tenth((double)turns.had_ms[1], 3. * MINUTE_MS);
}

static void a_step_longer_than_a_turn_is_completed(void **state) {
  struct turns turns = turns_begin(*state, 1);
  user_submits(turns.f, names[0], 1, 0);
  user_submits(turns.f, names[1], 1, 0);
  runs_train(&turns, 20000, 10000); /* the second step says what the hand-over took: nothing */
  assert_ptr_equal(turns.has[0], names[1]);
  assert_int_equal(turns.steps[0], 2);
  runs_train(&turns, 60000, 10000);
  assert_int_equal(turns.steps[0] + turns.steps[1], 8);
  assert_true(turns.steps[0] >= 4 && turns.steps[1] >= 4);
}

static void a_turn_is_twenty_times_as_long_as_the_hand_over(void **state) {
  struct turns turns = turns_begin(*state, 1);
  user_submits(turns.f, names[0], 1, 0);
  user_submits(turns.f, names[1], 1, 0);
  runs_train(&turns, 500, 500); /* the first step: 400 ms of it were the hand-over */
  runs_train(&turns, 7400, TICK_MS);
  assert_ptr_equal(turns.has[0], names[0]);
  runs_train(&turns, 100, TICK_MS);
  assert_ptr_equal(turns.has[0], names[1]);
}

static void only_so_many_runs_take_turns(void **state) {
  struct turns turns = turns_begin(*state, 1);
  for (int run = 0; run < 6; run++)
    user_submits(turns.f, names[run], 1, 0);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  for (int run = 0; run < 4; run++)
    assert_within_a_tenth((double)turns.had_ms[run], MINUTE_MS / 4.);
  assert_state(turns.f, names[4], WEIR__RUN_STATE__QUEUED);
  user_cancels(turns.f, names[0]);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[4], MINUTE_MS / 4.); /* it makes up for nothing */
  assert_state(turns.f, names[5], WEIR__RUN_STATE__QUEUED);
}

static void a_gang_has_its_turn_too(void **state) {
  struct turns turns = turns_begin(*state, 2);
  user_submits(turns.f, names[0], 1, 1);
  user_submits(turns.f, names[1], 1, 1);
  user_submits(turns.f, names[2], 2, 0);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  for (int run = 0; run < 3; run++)
    assert_within_a_tenth((double)turns.had_ms[run], MINUTE_MS * 2 / 3.);
}

static void a_run_that_had_many_workers_does_not_pay_for_it(void **state) {
  struct turns turns = turns_begin(*state, 5);
  user_submits(turns.f, names[0], 4, 4);
  user_submits(turns.f, names[1], 1, 1);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[0], 4. * MINUTE_MS);
  while (turns.n_workers > 1)
    member_leaves(turns.f, W1 + (uint64_t)--turns.n_workers);
  turns.had_ms[0] = turns.had_ms[1] = 0;
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_true(turns.had_ms[0] >= MINUTE_MS / 3 && turns.had_ms[1] >= MINUTE_MS / 3);
}

static void a_turn_is_not_cut_within_a_step_by_one_that_comes(void **state) {
  struct turns turns = turns_begin(*state, 2);
  user_submits(turns.f, names[0], 1, 1);
  runs_train(&turns, 3000, TICK_MS);
  user_submits(turns.f, names[1], 1, 1);
  user_sets(turns.f, names[1], "workers.weight=10"); /* it uses up little */
  runs_train(&turns, 1000, TICK_MS);
  time_passes(turns.f, TICK_MS / 2);
  user_submits(turns.f, names[2], 1, 1); /* the first has had more than the second: it goes before that */
  assert_string_equal(turns.f->told[W1].unload, "");
  time_passes(turns.f, 3000);
  assert_string_equal(turns.f->told[W1].unload, "");
  reports_step(turns.f, S1, names[0], turns.steps[0]);
  assert_string_equal(turns.f->told[W1].unload, names[0]);
}

static void a_run_of_lower_priority_has_no_turn(void **state) {
  struct turns turns = turns_begin(*state, 1);
  user_submits(turns.f, names[0], 1, 0);
  runs_train(&turns, 1000, TICK_MS);
  turns.f->priority = 1;
  user_submits(turns.f, names[1], 1, 0);
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_true(turns.had_ms[0] <= 1000);
  user_sets(turns.f, names[0], "priority=1");
  runs_train(&turns, MINUTE_MS, TICK_MS);
  assert_within_a_tenth((double)turns.had_ms[0], MINUTE_MS / 2.);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(two_runs_have_one_worker_for_half_of_a_minute_each),
      TEST(turns_are_as_long_as_runs_weigh),
      TEST(three_runs_share_two_workers_evenly),
      TEST(a_worker_more_than_runs_goes_round),
      TEST(a_step_longer_than_a_turn_is_completed),
      TEST(a_turn_is_twenty_times_as_long_as_the_hand_over),
      TEST(only_so_many_runs_take_turns),
      TEST(a_gang_has_its_turn_too),
      TEST(a_run_that_had_many_workers_does_not_pay_for_it),
      TEST(a_turn_is_not_cut_within_a_step_by_one_that_comes),
      TEST(a_run_of_lower_priority_has_no_turn),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

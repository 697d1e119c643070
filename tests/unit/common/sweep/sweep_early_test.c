/* Trials that end early: they take the virtual time that they compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/message.h"
#include "common/sweep/sweep_order.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

static const char text[] = "name: search\n"
                           "spec: base.yaml\n"
                           "objective: {metric: accuracy}\n"
                           "search: {name: random, seed: 3}\n"
                           "schedule: {name: asha, rungs: [10, 30, 90], eta: 3}\n"
                           "budget: {trials: 9}\n"
                           "concurrency: 2\n"
                           "space:\n"
                           "  train.optimizer.lr: {log: [0.0001, 0.3]}\n"
                           "  train.early_stopping.patience: [2, 5]\n";

/* The next record, which is applied; freed by the caller. NULL: it waits. */
static Weir__SweepRecord *next(struct sweep *sweep) {
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  if (sweep_next(sweep, &record) != SWEEP_DECIDED)
    return NULL;
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  return record;
}

static struct sweep *begin_two(const char *const *settings, int n) {
  struct sweep *sweep = sweep_of(text, settings, n);
  for (int i = 0; i < 2; i++)
    message_free(next(sweep));
  assert_null(next(sweep));
  return sweep;
}

static void assert_waits(struct sweep *sweep) {
  assert_null(next(sweep));
}

/* The trial is the one that a record has a result of. */
static void assert_result(struct sweep *sweep, uint32_t trial, const char *spared) {
  Weir__SweepRecord *record = next(sweep);
  assert_non_null(record);
  assert_non_null(record->result);
  assert_int_equal(record->result->trial, trial);
  if (spared)
    assert_string_equal(record->result->spared, spared);
  else
    assert_null(record->result->spared);
  message_free(record);
}

static void a_trial_that_ends_early_leaves_its_place_when_it_does(void **state) {
  struct sweep *sweep = begin_two(NULL, 0);
  Weir__SweepRecord *record;
  double whole = sweep->trials[0].end;
  (void)state;
  sweep_tell(sweep, 1, 0, &(struct sweep_outcome){.value = 0.5, .spared = 0.75});
  assert_waits(sweep);                                /* trial 0 may have ended before that */
  assert_false(sweep_tell_left(sweep, 0, 0, 1, 0.5)); /* there is no such repeat, */
  assert_false(sweep_tell_left(sweep, 0, 1, 0, 0.5)); /* rung */
  assert_false(sweep_tell_left(sweep, 9, 0, 0, 0.5)); /* or trial */
  assert_true(sweep_tell_left(sweep, 0, 0, 0, 0.75));
  assert_waits(sweep);                                 /* it may end with it, and has the lower number */
  assert_false(sweep_tell_left(sweep, 0, 0, 0, 0.75)); /* no news */
  assert_true(sweep_tell_left(sweep, 0, 0, 0, 0.7));
  assert_result(sweep, 1, "0.75");
  assert_true(sweep->now == whole / 4);
  record = next(sweep); /* in its place another begins */
  assert_int_equal(record->suggestion->trial, 2);
  message_free(record);
  assert_true(sweep->trials[2].began == whole / 4 && sweep->trials[2].end == whole / 4 + whole);
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5});
  assert_waits(sweep); /* trial 2 may end before it */
  assert_true(sweep_tell_left(sweep, 2, 0, 0, 0.2));
  assert_result(sweep, 0, NULL);
  sweep_free(sweep);
}

static void a_trial_that_has_ended_takes_no_time_on_its_way_to_further_rungs(void **state) {
  struct sweep *sweep = begin_two((const char *[]){"budget.trials=2", "schedule.name=none"}, 2);
  Weir__SweepRecord *record;
  double now;
  (void)state;
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5, .spared = 0.5});
  sweep_tell(sweep, 1, 0, &(struct sweep_outcome){.value = 0.4});
  assert_result(sweep, 0, "0.5");
  now = sweep->now;
  record = next(sweep);
  assert_int_equal(record->promotion->trial, 0);
  message_free(record);
  sweep_tell(sweep, 0, 1, &(struct sweep_outcome){.value = 0.5, .spared = 1});
  assert_result(sweep, 0, "1");
  assert_true(sweep->now == now);
  sweep_free(sweep);
}

static void a_result_that_left_out_no_share_of_its_way_is_refused(void **state) {
  static const char *const wrong[] = {"-0.1", "1.1", "nan", "inf"};
  struct sweep *sweep = begin_two(NULL, 0);
  Weir__SweepRecord *record;
  (void)state;
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5, .spared = 0.5});
  sweep_tell(sweep, 1, 0, &(struct sweep_outcome){.value = 0.5, .spared = 0.5});
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct err err = ERR_NONE;
    free(record->result->spared);
    record->result->spared = strdup(wrong[i]);
    assert_int_equal(sweep_apply(sweep, record, &err), ERR_CORRUPT);
  }
  message_free(record);
  sweep_free(sweep);
}

static void by_arrival_nothing_waits_for_ends(void **state) {
  struct sweep *sweep = begin_two((const char *[]){"order=arrival"}, 1);
  (void)state;
  sweep_tell(sweep, 1, 0, &(struct sweep_outcome){.value = 0.5, .spared = 0.5});
  assert_false(sweep_tell_left(sweep, 0, 0, 0, 0.1));
  assert_result(sweep, 1, "0.5");
  sweep_free(sweep);
}

/* One of three ends early, and once it has, leaves out all of its way to the rungs behind. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  struct sweep_outcome outcome = sweep_draw_outcome(trial, rung);
  uint64_t bits = random_bits(random_key(11, trial->number, 0, 0), 0);
  int last = (int)(bits % 9);
  if (rung == last)
    outcome.spared = (double)(bits >> 40) / 16777216;
  else if (rung > last)
    outcome.spared = 1;
  return outcome;
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  (void)state;
  sweep_check_log(text, outcome_of, 9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trial_that_ends_early_leaves_its_place_when_it_does),
      cmocka_unit_test(a_trial_that_has_ended_takes_no_time_on_its_way_to_further_rungs),
      cmocka_unit_test(a_result_that_left_out_no_share_of_its_way_is_refused),
      cmocka_unit_test(by_arrival_nothing_waits_for_ends),
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

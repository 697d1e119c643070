/* Results that are decided upon as they come, and the constraint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "tests/support/common/sweep_specs.h"

/* Decides until a result is waited for, or the sweep is over. The trial whose result was decided upon last;
 * -1: none was. */
static int decide_all(struct sweep *sweep) {
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  int last = -1;
  while (sweep_next(sweep, &record) == SWEEP_DECIDED) {
    if (record->result)
      last = (int)record->result->trial;
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    message_free(record);
  }
  return last;
}

static void tell(struct sweep *sweep, uint32_t trial, double value, double bounded) {
  struct sweep_outcome outcome = {.value = value, .bounded = bounded};
  sweep_tell(sweep, trial, sweep->trials[trial].n_results, &outcome);
}

static void by_arrival_a_result_waits_for_no_other(void **state) {
  const char *const settings[] = {"order=arrival", "schedule={name: none}", "concurrency=3",
                                  "budget={trials: 6}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 4);
  (void)state;
  assert_int_equal(decide_all(sweep), -1);
  assert_int_equal(sweep->n_trials, 3);
  tell(sweep, 2, 0.5, 0);
  assert_int_equal(decide_all(sweep), 2);
  assert_int_equal(sweep->n_trials, 4);
  tell(sweep, 3, 0.5, 0);
  tell(sweep, 0, 0.5, 0); /* the one that was told last is decided upon last */
  assert_int_equal(decide_all(sweep), 0);
  assert_int_equal(sweep->n_trials, 6);
  for (uint32_t i = 1; i < 6; i++)
    tell(sweep, i, 0.5, 0);
  decide_all(sweep);
  assert_string_equal(sweep->end, "nothing is left to do");
  sweep_free(sweep);
}

static void in_virtual_time_a_result_waits_for_those_before_it(void **state) {
  const char *const settings[] = {"schedule={name: none}", "concurrency=3", "budget={trials: 6}",
                                  "space={train.optimizer.lr: [0.1, 0.2]}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 4);
  (void)state;
  decide_all(sweep);
  tell(sweep, 2, 0.5, 0);
  assert_int_equal(decide_all(sweep), -1);
  tell(sweep, 0, 0.5, 0);
  assert_int_equal(decide_all(sweep), 0);
  sweep_free(sweep);
}

/* Of one trial by the objective's value and that of the constraint's metric; NULL: it has not failed. */
static const char *failure_with(const char *constraint, double bounded, char text[64]) {
  const char *const settings[] = {constraint, "schedule={name: none}", "budget={trials: 1}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 3);
  bool has_failed;
  decide_all(sweep);
  tell(sweep, 0, 0.5, bounded);
  decide_all(sweep);
  has_failed = sweep->trials[0].failure != NULL;
  if (has_failed)
    strcpy(text, sweep->trials[0].failure);
  assert_true(has_failed == !sweep_best(sweep));
  sweep_free(sweep);
  return has_failed ? text : NULL;
}

static void a_trial_that_does_not_meet_the_constraint_has_failed(void **state) {
  char text[64];
  (void)state;
  assert_null(failure_with("constraint={metric: loss, max: 0.5}", 0.5, text));
  assert_string_equal(failure_with("constraint={metric: loss, max: 0.5}", 0.6, text),
                      "it does not meet the constraint: above max");
  assert_string_equal(failure_with("constraint={metric: loss, min: 0.5}", 0.4, text),
                      "it does not meet the constraint: below min");
  assert_non_null(failure_with("constraint={metric: loss, min: 0, max: 1}", strtod("nan", NULL), text));
}

static void the_constraint_counts_at_the_last_rung_alone(void **state) {
  const char *const settings[] = {"constraint={metric: loss, max: 0.5}",
                                  "schedule={name: asha, rungs: [1, 2], eta: 2}", "budget={trials: 1}",
                                  "concurrency=1"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 4);
  (void)state;
  decide_all(sweep);
  tell(sweep, 0, 0.5, 9);
  decide_all(sweep);
  assert_null(sweep->trials[0].failure);
  assert_int_equal(sweep->trials[0].n_results, 1);
  sweep_free(sweep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_arrival_a_result_waits_for_no_other),
      cmocka_unit_test(in_virtual_time_a_result_waits_for_those_before_it),
      cmocka_unit_test(a_trial_that_does_not_meet_the_constraint_has_failed),
      cmocka_unit_test(the_constraint_counts_at_the_last_rung_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

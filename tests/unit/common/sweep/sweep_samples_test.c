/* Rungs that are numbers of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

static const char text[] = "name: search\n"
                           "spec: base.yaml\n"
                           "objective: {metric: accuracy}\n"
                           "search: {name: random, seed: 3}\n"
                           "schedule: {name: asha, rungs: [640, 1000, 1920], unit: samples, eta: 2}\n"
                           "budget: {trials: 9}\n"
                           "concurrency: 2\n"
                           "space: {train.batch: [32, 64, 128]}\n"
                           "points: [{train.batch: 128}, {train.batch: 32}]\n";

static void assert_steps(const struct sweep *sweep, int trial, const uint64_t expected[3]) {
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  assert_int_equal(sweep_trial_spec(sweep, &sweep->trials[trial], &spec, &err), 0);
  assert_int_equal(spec->train->hold, expected[0]);
  assert_int_equal(spec->eval->n_at, 2);
  for (int i = 0; i < 2; i++)
    assert_int_equal(spec->eval->at[i], expected[i]);
  assert_int_equal(spec->train->steps, expected[2]);
  for (int i = 0; i < 3; i++)
    assert_int_equal(sweep_rung_step(sweep, &sweep->trials[trial], i, 0), expected[i]);
  spec_free(spec);
}

static void a_trials_steps_follow_from_its_batch(void **state) {
  struct sweep *sweep = sweep_of(text, NULL, 0);
  (void)state;
  sweep_take_next(sweep);
  sweep_take_next(sweep);
  assert_steps(sweep, 0, (const uint64_t[]){5, 8, 15}); /* 1000 / 128, upwards */
  assert_steps(sweep, 1, (const uint64_t[]){20, 32, 60});
  sweep_free(sweep);
}

static void trials_of_as_many_samples_take_as_long(void **state) {
  struct sweep *sweep = sweep_of(text, NULL, 0);
  (void)state;
  sweep_take_next(sweep);
  sweep_take_next(sweep);
  assert_true(sweep->trials[0].end == 640 && sweep->trials[1].end == 640);
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5});
  sweep_take_next(sweep);
  assert_int_equal(sweep->trials[0].n_results, 1);
  assert_int_equal(sweep->trials[0].results[0].steps, 640); /* searchers compare by samples */
  sweep_free(sweep);
}

static void the_budget_counts_samples(void **state) {
  static const char *const settings[] = {"budget={steps: 1999}", "concurrency=8"};
  struct sweep *sweep = sweep_of(text, settings, 2);
  Weir__SweepRecord *record;
  (void)state;
  for (int i = 0; i < 3; i++)
    sweep_take_next(sweep);
  assert_int_equal(sweep_next(sweep, &record), SWEEP_WAITS);
  assert_int_equal(sweep->begun_steps, 3 * 640);
  sweep_free(sweep);
}

static void an_interval_goes_up_to_the_samples_of_the_run(void **state) {
  Weir__RunSpec *base = sweep_base_spec();
  static const char *const settings[] = {"schedule={name: none, unit: samples}"};
  static const uint64_t expected[] = {700, 1400, 1600};
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(text, settings, 1, &err);
  (void)state;
  base->train->has_epochs = false;
  base->train->has_steps = true;
  base->train->steps = 25; /* of 64 */
  spec->schedule->has_interval = true;
  spec->schedule->interval = 700;
  assert_int_equal(sweep_spec_check_base(spec, base, &err), 0);
  assert_int_equal(spec->schedule->n_rungs, 3);
  for (int i = 0; i < 3; i++)
    assert_int_equal(spec->schedule->rungs[i], expected[i]);
  message_free(spec);
  spec_free(base);
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  (void)state;
  sweep_check_log(text, sweep_draw_outcome, 9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trials_steps_follow_from_its_batch),
      cmocka_unit_test(trials_of_as_many_samples_take_as_long),
      cmocka_unit_test(the_budget_counts_samples),
      cmocka_unit_test(an_interval_goes_up_to_the_samples_of_the_run),
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Rungs that are numbers of epochs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/plan.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

enum { SAMPLES = 1000 };

static const char text[] = "name: search\n"
                           "spec: base.yaml\n"
                           "objective: {metric: accuracy}\n"
                           "search: {name: random, seed: 3}\n"
                           "schedule: {name: asha, rungs: [1, 3, 9], unit: epochs, eta: 2}\n"
                           "budget: {trials: 9}\n"
                           "concurrency: 2\n"
                           "space: {train.batch: [32, 64, 128]}\n"
                           "points: [{train.batch: 128}, {train.batch: 32}]\n";

static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  struct sweep_outcome outcome = sweep_draw_outcome(trial, rung);
  outcome.train_samples = SAMPLES;
  return outcome;
}

/* What its run makes of its spec, once the data is known: the steps of each rung. */
static void assert_steps(const struct sweep *sweep, int trial, const uint64_t expected[3]) {
  Weir__RunSpec *spec;
  struct plan plan;
  struct err err = ERR_NONE;
  assert_int_equal(sweep_trial_spec(sweep, &sweep->trials[trial], &spec, &err), 0);
  assert_int_equal(plan_init(&plan, spec, SAMPLES, 100, &err), 0);
  plan_fix_hold(&plan, spec->train);
  assert_true(spec->train->has_hold && !spec->train->has_hold_epochs);
  assert_int_equal(spec->train->hold, expected[0]);
  assert_int_equal(plan.n_eval_at, 2);
  for (int i = 0; i < 2; i++)
    assert_int_equal(plan.eval_at[i], expected[i]);
  assert_int_equal(plan.steps, expected[2]);
  for (int i = 0; i < 3; i++)
    assert_int_equal(sweep_rung_step(sweep, &sweep->trials[trial], i, SAMPLES), expected[i]);
  spec_free(spec);
}

static void a_trials_steps_follow_from_its_batch_and_its_data(void **state) {
  struct sweep *sweep = sweep_of(text, NULL, 0);
  (void)state;
  sweep_take_next(sweep);
  sweep_take_next(sweep);
  assert_steps(sweep, 0, (const uint64_t[]){7, 23, 70}); /* 1000 / 128, downwards, as of train.epochs */
  assert_steps(sweep, 1, (const uint64_t[]){31, 93, 281});
  sweep_free(sweep);
}

static void trials_of_as_many_epochs_take_as_long(void **state) {
  struct sweep *sweep = sweep_of(text, NULL, 0);
  (void)state;
  sweep_take_next(sweep);
  sweep_take_next(sweep);
  assert_true(sweep->trials[0].end == 1 && sweep->trials[1].end == 1);
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5, .train_samples = SAMPLES});
  sweep_take_next(sweep);
  assert_int_equal(sweep->trials[0].n_results, 1);
  assert_int_equal(sweep->trials[0].results[0].steps, 1); /* searchers compare by epochs */
  assert_int_equal(sweep->trials[0].train_samples, SAMPLES);
  assert_int_equal(sweep->trials[1].train_samples, 0);
  sweep_free(sweep);
}

static void a_result_says_of_how_many_samples_its_epochs_are(void **state) {
  struct sweep *sweep = sweep_of(text, NULL, 0);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  sweep_take_next(sweep);
  sweep_take_next(sweep);
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.5, .train_samples = SAMPLES});
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_int_equal(record->result->train_samples, SAMPLES);
  record->result->train_samples = 0;
  assert_int_equal(sweep_apply(sweep, record, &err), ERR_CORRUPT);
  record->result->train_samples = SAMPLES;
  err = ERR_NONE;
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
  sweep_free(sweep);
}

static void the_budget_counts_epochs(void **state) {
  static const char *const settings[] = {"budget={steps: 3}", "concurrency=8"};
  struct sweep *sweep = sweep_of(text, settings, 2);
  Weir__SweepRecord *record;
  (void)state;
  for (int i = 0; i < 3; i++)
    sweep_take_next(sweep);
  assert_int_equal(sweep_next(sweep, &record), SWEEP_WAITS);
  assert_int_equal(sweep->begun_steps, 3);
  sweep_free(sweep);
}

/* With an interval in epochs, of a run of so many epochs or steps. */
static int check_interval(double epochs, uint64_t interval, Weir__SweepSpec **spec, struct err *err) {
  static const char *const settings[] = {"schedule={name: none, unit: epochs}"};
  Weir__RunSpec *base = sweep_base_spec();
  *spec = sweep_spec_of(text, settings, 1, err);
  base->train->epochs = epochs;
  base->train->has_epochs = epochs > 0;
  base->train->has_steps = epochs == 0;
  (*spec)->schedule->has_interval = true;
  (*spec)->schedule->interval = interval;
  sweep_spec_check_base(*spec, base, err);
  spec_free(base);
  return err->code;
}

static void an_interval_goes_up_to_the_epochs_of_the_run(void **state) {
  static const uint64_t expected[] = {2, 4, 5};
  static const struct {
    double epochs;
    uint64_t interval;
    const char *text;
  } wrong[] = {{2.5, 1, "schedule.interval: the run spec has train.epochs 2.5"},
               {0, 1, "schedule.interval: the run spec has train.steps"},
               {5, 6, "schedule.interval: a trial ends at epoch 5"},
               {65, 1, "schedule.interval: 65 rungs up to epoch 65"}};
  Weir__SweepSpec *spec;
  struct err err;
  (void)state;
  assert_int_equal(check_interval(5, 2, &spec, &err), 0);
  assert_int_equal(spec->schedule->n_rungs, 3);
  for (int i = 0; i < 3; i++)
    assert_int_equal(spec->schedule->rungs[i], expected[i]);
  message_free(spec);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(check_interval(wrong[i].epochs, wrong[i].interval, &spec, &err), ERR_INVALID);
    if (strncmp(err.text, wrong[i].text, strlen(wrong[i].text)) != 0)
      fail_msg("'%s' does not begin with '%s'", err.text, wrong[i].text);
    message_free(spec);
  }
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  (void)state;
  sweep_check_log(text, outcome_of, 9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trials_steps_follow_from_its_batch_and_its_data),
      cmocka_unit_test(trials_of_as_many_epochs_take_as_long),
      cmocka_unit_test(a_result_says_of_how_many_samples_its_epochs_are),
      cmocka_unit_test(the_budget_counts_epochs),
      cmocka_unit_test(an_interval_goes_up_to_the_epochs_of_the_run),
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

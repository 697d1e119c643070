/* Trials of several runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/message.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

static const char text[] = "name: search\n"
                           "spec: base.yaml\n"
                           "objective: {metric: accuracy}\n"
                           "search: {name: tpe, seed: 3, n_startup_trials: 4}\n"
                           "schedule: {name: asha, rungs: [10, 30, 90], eta: 3}\n"
                           "budget: {trials: 20}\n"
                           "concurrency: 4\n"
                           "repeats: 3\n"
                           "space:\n"
                           "  train.optimizer.lr: {log: [0.0001, 0.3]}\n";

/* The sweep of one trial, which runs to its first rung. */
static struct sweep *begin(const char *const *settings, int n) {
  const char *all[4] = {"concurrency=1"};
  struct sweep *sweep;
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  for (int i = 0; i < n; i++)
    all[1 + i] = settings[i];
  sweep = sweep_of(text, all, 1 + n);
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
  return sweep;
}

static void tell(struct sweep *sweep, uint32_t repeat, double value, const char *failure) {
  const struct sweep_outcome outcome = {
      .repeat = repeat, .value = value, .others = {10 * value}, .failure = failure};
  sweep_tell(sweep, 0, 0, &outcome);
}

/* Once all is told. Freed with message_free. */
static Weir__SweepRecord *result(struct sweep *sweep) {
  Weir__SweepRecord *record;
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_non_null(record->result);
  return record;
}

static void assert_waits(struct sweep *sweep) {
  Weir__SweepRecord *record;
  assert_int_equal(sweep_next(sweep, &record), SWEEP_WAITS);
}

static void a_result_is_the_mean_once_all_repeats_have_come_to_the_rung(void **state) {
  struct sweep *sweep = begin(NULL, 0);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  tell(sweep, 2, 1, NULL);
  tell(sweep, 0, 0.25, NULL);
  tell(sweep, 0, 7, NULL); /* it was told */
  tell(sweep, 3, 7, NULL); /* there is none */
  assert_waits(sweep);
  assert_true(sweep_is_told(&sweep->trials[0], 0) && !sweep_is_told(&sweep->trials[0], 1));
  tell(sweep, 1, 0.25, NULL);
  record = result(sweep);
  assert_string_equal(record->result->value, "0.5");
  assert_int_equal(record->result->n_repeats, 3);
  assert_string_equal(record->result->repeats[0]->value, "0.25");
  assert_string_equal(record->result->repeats[1]->value, "0.25");
  assert_string_equal(record->result->repeats[2]->value, "1");
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  assert_true(sweep_value(sweep, &sweep->trials[0], 0) == 0.5);
  assert_false(sweep_is_told(&sweep->trials[0], 0)); /* of the next rung */
  message_free(record);
  sweep_free(sweep);
}

static void of_several_objectives_each_is_a_mean(void **state) {
  static const char *const settings[] = {"objective=[{metric: accuracy}, {metric: loss}]",
                                         "schedule={name: none}"};
  struct sweep *sweep = begin(settings, 2);
  Weir__SweepRecord *record;
  (void)state;
  for (uint32_t r = 0; r < 3; r++)
    tell(sweep, r, r, NULL);
  record = result(sweep);
  assert_string_equal(record->result->value, "1");
  assert_string_equal(record->result->others[0], "10");
  assert_string_equal(record->result->repeats[2]->others[0], "20");
  message_free(record);
  sweep_free(sweep);
}

static void a_constraint_bounds_the_mean(void **state) {
  static const char *const settings[] = {"constraint={metric: loss, max: 2}", "schedule={name: none}"};
  (void)state;
  for (int is_above = 0; is_above < 2; is_above++) {
    struct sweep *sweep = begin(settings, 2);
    Weir__SweepRecord *record;
    for (uint32_t r = 0; r < 3; r++)
      sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.repeat = r, .bounded = r == 0 ? 4 + is_above : 1});
    record = result(sweep);
    assert_int_equal(record->result->failure != NULL, is_above);
    message_free(record);
    sweep_free(sweep);
  }
}

static void the_first_repeat_that_fails_says_why_whichever_is_told_first(void **state) {
  static const uint32_t orders[][3] = {{1, 2, 0}, {2, 1, 0}, {2, 0, 1}};
  static const char *const failures[] = {NULL, "its training diverges", "its run was ended"};
  (void)state;
  for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
    struct sweep *sweep = begin(NULL, 0);
    Weir__SweepRecord *record;
    struct err err = ERR_NONE;
    for (int i = 0; i < 3; i++) {
      assert_waits(sweep);
      tell(sweep, orders[o][i], 0.5, failures[orders[o][i]]);
    }
    record = result(sweep);
    assert_string_equal(record->result->failure, failures[1]);
    assert_int_equal(record->result->n_repeats, 0);
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    assert_int_equal(sweep->trials[0].state, SWEEP_TRIAL_FAILED);
    message_free(record);
    sweep_free(sweep);
  }
}

static void a_failure_waits_for_no_repeat_behind_it(void **state) {
  struct sweep *sweep = begin(NULL, 0);
  Weir__SweepRecord *record;
  (void)state;
  tell(sweep, 1, 0, "its training diverges");
  assert_waits(sweep);
  tell(sweep, 0, 0.5, NULL);
  record = result(sweep);
  assert_string_equal(record->result->failure, "its training diverges");
  message_free(record);
  sweep_free(sweep);
}

static void budget_and_virtual_time_count_every_repeat(void **state) {
  static const char *const settings[] = {"budget={steps: 59}"};
  struct sweep *sweep = begin(settings, 1);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(sweep->begun_steps, 3 * 10);
  assert_true(sweep->trials[0].end == 3 * 10 * 64);
  for (uint32_t r = 0; r < 3; r++)
    tell(sweep, r, 0.5, NULL);
  record = result(sweep);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_non_null(record->end); /* another trial would need 30 steps, too */
  message_free(record);
  sweep_free(sweep);
}

static void repeats_have_seeds_and_names_of_their_own_and_one_split(void **state) {
  static const char *const names[] = {"search-0000", "search-0000-1", "search-0000-2"};
  struct sweep *sweep = begin(NULL, 0);
  struct err err = ERR_NONE;
  (void)state;
  sweep->base->train->has_seed = true;
  sweep->base->train->seed = 40;
  for (uint32_t r = 0; r < 3; r++) {
    Weir__RunSpec *spec;
    assert_int_equal(sweep_repeat_spec(sweep, &sweep->trials[0], r, &spec, &err), 0);
    assert_string_equal(spec->name, names[r]);
    assert_int_equal(spec->train->seed, 40 + r);
    assert_true(spec->data->has_split_seed && spec->data->split_seed == 40);
    assert_int_equal(spec_check(spec, &err), 0);
    spec_free(spec);
  }
  sweep_free(sweep);
}

static void a_run_spec_keeps_its_own_split_seed(void **state) {
  struct sweep *sweep = begin(NULL, 0);
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  (void)state;
  sweep->base->data->has_split_seed = true;
  sweep->base->data->split_seed = 7;
  assert_int_equal(sweep_repeat_spec(sweep, &sweep->trials[0], 2, &spec, &err), 0);
  assert_int_equal(spec->data->split_seed, 7);
  spec_free(spec);
  sweep_free(sweep);
}

static void a_record_that_lacks_a_repeat_is_corrupt(void **state) {
  struct sweep *sweep = begin(NULL, 0);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  for (uint32_t r = 0; r < 3; r++)
    tell(sweep, r, 0.5, NULL);
  record = result(sweep);
  message_free(record->result->repeats[--record->result->n_repeats]);
  assert_int_equal(sweep_apply(sweep, record, &err), ERR_CORRUPT);
  message_free(record);
  sweep_free(sweep);
}

static uint64_t draws; /* of what is told next */

/* Of any of the trial's runs. Some fail, not all of a trial's and each for another reason. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  static const char *const failures[] = {"its training diverges", "its run was ended", "it is gone"};
  uint32_t repeat = (uint32_t)(random_bits(11, draws++) % 3);
  uint64_t bits = random_bits(random_key(7, trial->number, repeat, 0), (uint64_t)rung);
  return (struct sweep_outcome){.repeat = repeat,
                                .failure = bits % 8 == 5 ? failures[repeat] : NULL,
                                .value = (double)(bits >> 40) / 16777216 + rung};
}

static void the_log_does_not_depend_on_which_repeat_comes_first_nor_on_deaths(void **state) {
  struct sweep_play play = {text, outcome_of, 1, false};
  struct kept first;
  struct sweep *sweep = sweep_run_of(&play, &first);
  int n_failed = 0;
  (void)state;
  for (int i = 0; i < sweep->n_trials; i++)
    n_failed += sweep->trials[i].state == SWEEP_TRIAL_FAILED;
  assert_int_equal(sweep->n_trials, 20);
  assert_true(n_failed > 2 && n_failed < 18);
  sweep_free(sweep);
  for (play.seed = 2; play.seed < 20; play.seed++) {
    struct kept other;
    play.is_killed = play.seed % 2;
    sweep_free(sweep_run_of(&play, &other));
    assert_same(&first, &other);
    kept_free(&other);
  }
  kept_free(&first);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_result_is_the_mean_once_all_repeats_have_come_to_the_rung),
      cmocka_unit_test(of_several_objectives_each_is_a_mean),
      cmocka_unit_test(a_constraint_bounds_the_mean),
      cmocka_unit_test(the_first_repeat_that_fails_says_why_whichever_is_told_first),
      cmocka_unit_test(a_failure_waits_for_no_repeat_behind_it),
      cmocka_unit_test(budget_and_virtual_time_count_every_repeat),
      cmocka_unit_test(repeats_have_seeds_and_names_of_their_own_and_one_split),
      cmocka_unit_test(a_run_spec_keeps_its_own_split_seed),
      cmocka_unit_test(a_record_that_lacks_a_repeat_is_corrupt),
      cmocka_unit_test(the_log_does_not_depend_on_which_repeat_comes_first_nor_on_deaths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

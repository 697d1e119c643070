/* Sweeps: what a log makes of them, and that it does not depend on when results come, nor on who dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/sweep/scheduler.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

/* A function of the trial and the rung alone; every eighth trial diverges at its second rung. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  if (trial->number % 8 == 5 && rung == 1)
    return (struct sweep_outcome){.failure = "its training diverges"};
  return sweep_draw_outcome(trial, rung);
}

static struct sweep *run_sweep(const char *text, uint64_t seed, bool is_killed, struct kept *kept) {
  return sweep_run_of(&(struct sweep_play){text, outcome_of, seed, is_killed}, kept);
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  (void)state;
  sweep_check_log(sweep_asha_text, outcome_of, 29);
}

/* Counts trials that have results at a rung. */
static int count_at(const struct sweep *sweep, int rung) {
  int n = 0;
  for (int i = 0; i < sweep->n_trials; i++)
    n += sweep->trials[i].n_results > rung;
  return n;
}

/* The text with another scheduler; freed by the caller. */
static char *text_with(const char *scheduler) {
  const char *word = strstr(sweep_asha_text, "asha");
  return mem_printf("%.*s%s%s", (int)(word - sweep_asha_text), sweep_asha_text, scheduler,
                    word + strlen("asha"));
}

static void every_scheduler_has_one_log(void **state) {
  (void)state;
  for (int i = 0; scheduler_at(i); i++) {
    const struct scheduler_def *scheduler = scheduler_at(i);
    char *text = scheduler->exploit ? mem_strdup(sweep_pbt_text) : text_with(scheduler->name);
    struct kept first, other;
    sweep_free(run_sweep(text, 1, false, &first));
    sweep_free(run_sweep(text, 2, true, &other));
    assert_same(&first, &other);
    kept_free(&first);
    kept_free(&other);
    free(text);
  }
}

/* The values of the objective, an accuracy, at a rung, the best first. */
static int descending(const void *a, const void *b) {
  return *(const double *)a < *(const double *)b ? 1 : -1;
}

static void asha_promotes_the_best_third_of_a_rung(void **state) {
  struct kept kept;
  struct sweep *sweep = run_sweep(sweep_asha_text, 1, false, &kept);
  double *values = mem_new((size_t)sweep->n_trials * sizeof *values);
  (void)state;
  assert_int_equal(sweep->n_trials, 27);
  assert_int_equal(count_at(sweep, 0), 27);
  for (int rung = 0; rung < 2; rung++) { /* the best third of those that came there has gone on */
    int n = 0;
    for (int i = 0; i < sweep->n_trials; i++)
      if (sweep->trials[i].n_results > rung)
        values[n++] = sweep_value(sweep, &sweep->trials[i], rung);
    qsort(values, (size_t)n, sizeof *values, descending);
    for (int i = 0; i < sweep->n_trials; i++)
      if (sweep->trials[i].n_results > rung &&
          sweep_value(sweep, &sweep->trials[i], rung) >= values[n / 3 - 1])
        assert_true(sweep->trials[i].n_results > rung + 1 || sweep->trials[i].state == SWEEP_TRIAL_FAILED);
  }
  assert_true(count_at(sweep, 2) >= 1);
  assert_int_equal(sweep_best(sweep)->n_results, 3);
  for (int i = 0; i < sweep->n_trials; i++) /* nothing is left open */
    assert_true(sweep->trials[i].state != SWEEP_TRIAL_RUNNING &&
                sweep->trials[i].state != SWEEP_TRIAL_WAITING);
  assert_string_equal(sweep->end, "nothing is left to do");
  free(values);
  sweep_free(sweep);
  kept_free(&kept);
}

static void halving_waits_for_all_of_a_rung(void **state) {
  char *text = text_with("halving");
  struct kept kept;
  struct sweep *sweep = run_sweep(text, 1, true, &kept);
  (void)state;
  assert_int_equal(count_at(sweep, 0), 27);
  assert_true(count_at(sweep, 1) >= 9 - 3 && count_at(sweep, 1) <= 9);
  assert_true(count_at(sweep, 2) <= 3 && count_at(sweep, 2) >= 1);
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

/* Values of the objective that trials have, or would have, at a rung; a trial that fails there is behind. */
static int better_first(const void *a, const void *b, void *user) {
  const struct sweep_trial trials[2] = {{.number = *(const uint32_t *)a}, {.number = *(const uint32_t *)b}};
  struct sweep_outcome first = outcome_of(&trials[0], *(int *)user),
                       second = outcome_of(&trials[1], *(int *)user);
  return first.value < second.value ? 1 : first.value > second.value ? -1 : 0;
}

/* Algorithm 1 of the paper for one bracket, told by numbers alone: what trials have come to, for those that
   do not fail. */
static void expect_bracket(uint32_t first, int n, int begin, int *rungs) {
  uint32_t members[27];
  int places = n;
  for (int i = 0; i < n; i++)
    members[i] = first + (uint32_t)i;
  for (int rung = 0; rung < 3; rung++) {
    int n_left = 0;
    for (int i = 0; i < n; i++)
      if (!outcome_of(&(struct sweep_trial){.number = members[i]}, rung).failure) {
        rungs[members[i]] = rung + 1;
        members[n_left++] = members[i];
      }
    qsort_r(members, (size_t)n_left, sizeof *members, better_first, &rung);
    if (rung >= begin)
      places = places / 3 ? places / 3 : 1;
    n = n_left < places ? n_left : places;
  }
}

static void hyperband_runs_brackets_from_many_short_trials_to_few_long_ones(void **state) {
  char *text = text_with("hyperband");
  int rungs[27] = {0};
  struct kept kept;
  struct sweep *sweep = run_sweep(text, 1, true, &kept);
  (void)state;
  expect_bracket(0, 9, 0, rungs);
  expect_bracket(9, 5, 1, rungs);
  expect_bracket(14, 3, 2, rungs);
  expect_bracket(17, 9, 0, rungs);
  expect_bracket(26, 1, 1, rungs); /* what budget.trials leaves of it */
  assert_int_equal(sweep->n_trials, 27);
  for (int i = 0; i < 27; i++)
    assert_int_equal(sweep->trials[i].n_results, rungs[i]);
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

static void median_stops_the_worse_half(void **state) {
  char *text = text_with("median");
  struct kept kept;
  struct sweep *sweep = run_sweep(text, 1, false, &kept);
  int n_stopped = 0;
  (void)state;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    n_stopped += trial->state == SWEEP_TRIAL_STOPPED;
    assert_true(trial->state != SWEEP_TRIAL_STOPPED || i >= 5); /* there is something to compare with */
  }
  assert_true(n_stopped >= 7 && n_stopped <= 20);
  assert_true(count_at(sweep, 2) + n_stopped <= 27);
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

/* Tells a trial's result, which is the next of the log. */
static void assert_next_result(struct sweep *sweep, uint32_t number) {
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  for (uint32_t i = 0; i < (uint32_t)sweep->n_trials; i++)
    sweep_tell(sweep, i, 0, &(struct sweep_outcome){.value = 0.5});
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_non_null(record->result);
  assert_int_equal(record->result->trial, number);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
}

static void assert_next_suggestion(struct sweep *sweep, uint32_t number) {
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_non_null(record->suggestion);
  assert_int_equal(record->suggestion->trial, number);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
}

static void a_bracket_does_not_wait_for_the_one_before(void **state) {
  static const char *const settings[] = {"schedule.name=hyperband", "concurrency=9",
                                         "space={train.batch: [64]}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 3);
  (void)state;
  for (uint32_t i = 0; i < 9; i++)
    assert_next_suggestion(sweep, i);
  assert_next_result(sweep, 0);
  assert_next_suggestion(sweep, 9); /* while eight of the first bracket are under way */
  sweep_free(sweep);
}

static void a_trial_begins_when_a_place_is_free_in_virtual_time(void **state) {
  static const char *const settings[] = {
      "concurrency=2", "schedule={name: none, rungs: [10]}",
      "points=[{train.optimizer.lr: 0.1, train.batch: 64}, {train.optimizer.lr: 0.2, train.batch: 32}, "
      "{train.optimizer.lr: 0.2, train.batch: 32}]"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 3);
  (void)state;
  assert_next_suggestion(sweep, 0); /* up to 640 */
  assert_next_suggestion(sweep, 1); /* up to 320 */
  assert_next_result(sweep, 1);
  assert_next_suggestion(sweep, 2); /* from 320 to 640: the lower number comes first */
  assert_next_result(sweep, 0);
  sweep_free(sweep);
}

static void a_trial_takes_its_samples_in_virtual_time(void **state) {
  static const char *const settings[] = {"concurrency=2", "schedule={name: none}",
                                         "points=[{train.optimizer.lr: 0.1, train.batch: 128}, "
                                         "{train.optimizer.lr: 0.2, train.batch: 32}]"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 3);
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
    assert_string_equal(record->suggestion->values[1]->value, i ? "32" : "128");
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    message_free(record);
  }
  sweep_tell(sweep, 1, 0, &(struct sweep_outcome){.value = 0.5});
  assert_int_equal(sweep_next(sweep, &record), SWEEP_WAITS); /* passes over the data count, not the batch */
  sweep_tell(sweep, 0, 0, &(struct sweep_outcome){.value = 0.25});
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_int_equal(record->result->trial, 0);
  assert_string_equal(record->result->value, "0.25");
  message_free(record);
  sweep_free(sweep);
}

/* Of 12 trials, then of 27. */
static struct sweep *extend(const char *text, uint64_t seed, bool is_killed, struct kept *kept) {
  const struct sweep_play play = {text, outcome_of, seed, is_killed};
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  Weir__SweepExtension extension = WEIR__SWEEP_EXTENSION__INIT;
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  struct sweep *sweep = sweep_run_of(&play, kept);
  assert_non_null(sweep->end);
  budget.has_trials = true;
  budget.trials = 27;
  extension.budget = &budget;
  record.extension = &extension;
  sweep_take(sweep, &record, kept);
  assert_null(sweep->end);
  return sweep_play_on(sweep, &play, kept);
}

static void an_extended_sweep_goes_on_with_trials_that_waited(void **state) {
  const char *was = strstr(sweep_asha_text, "27");
  char *text = mem_printf("%.*s12%s", (int)(was - sweep_asha_text), sweep_asha_text, was + 2);
  struct kept first, other;
  struct sweep *sweep = extend(text, 1, false, &first);
  int n_late = 0;
  (void)state;
  assert_int_equal(sweep->n_trials, 27);
  for (int i = 0; i < 12; i++)
    n_late += sweep->trials[i].is_revived && sweep->trials[i].n_results > 1;
  assert_true(n_late > 0);
  assert_string_equal(sweep->end, "nothing is left to do");
  sweep_free(sweep);
  sweep_free(extend(text, 2, true, &other));
  assert_same(&first, &other);
  kept_free(&first);
  kept_free(&other);
  free(text);
}

static void assert_not_extended(const char *setting, Weir__SweepBudget budget, const char *expected) {
  struct sweep *sweep = sweep_of(sweep_asha_text, &setting, 1);
  struct err err = ERR_NONE;
  if (sweep_check_extension(sweep, &budget, &err) == 0 || !strstr(err.text, expected))
    fail_msg("%s: '%s' lacks '%s'", setting, err.text, expected);
  sweep_free(sweep);
}

static void a_budget_that_is_not_larger_is_refused(void **state) {
  Weir__SweepBudget trials = WEIR__SWEEP_BUDGET__INIT, steps = trials, seconds = trials;
  (void)state;
  trials.has_trials = steps.has_steps = seconds.has_seconds = true;
  trials.trials = 27;
  steps.steps = 500;
  seconds.seconds = -1;
  assert_not_extended("budget.trials=27", trials, "budget.trials: 27 is not above the 27 of before");
  assert_not_extended("budget.trials=27", steps, "budget.steps: the sweep has no such bound");
  assert_not_extended("budget.steps=500", steps, "budget.steps: 500 is not above the 500 of before");
  assert_not_extended("budget.seconds=5", seconds, "budget.seconds: it must be above 0");
  trials.trials = 30;
  assert_not_extended("schedule.name=halving", trials, "budget.trials: with schedule 'halving'");
  trials.has_trials = false;
  assert_not_extended("budget.trials=27", trials, "budget: give ");
}

static void many_bad_inputs_end_a_sweep(void **state) {
  struct sweep *sweep = sweep_of(sweep_asha_text, NULL, 0);
  Weir__SweepRecord *record;
  enum sweep_turn turn;
  struct err err = ERR_NONE;
  (void)state;
  while ((turn = sweep_next(sweep, &record)) != SWEEP_OVER) {
    if (turn == SWEEP_DECIDED) {
      assert_int_equal(sweep_apply(sweep, record, &err), 0);
      message_free(record);
    }
    for (int i = 0; turn == SWEEP_WAITS && i < sweep->n_trials; i++)
      sweep_tell(sweep, (uint32_t)i, 0, &(struct sweep_outcome){.failure = "bad", .is_bad_input = true});
  }
  assert_non_null(strstr(sweep->end, "bad"));
  assert_true(sweep->n_trials < 10);
  assert_null(sweep_best(sweep));
  sweep_free(sweep);
}

static void records_that_cannot_follow_are_refused(void **state) {
  struct kept kept;
  struct sweep *sweep;
  (void)state;
  sweep_free(run_sweep(sweep_asha_text, 1, false, &kept));
  for (int at = 0; at < kept.n / 2; at++) { /* a log that lacks one of its records */
    int bad = 0;
    sweep = sweep_of(sweep_asha_text, NULL, 0);
    for (int r = 0; r < kept.n && !bad; r++) {
      Weir__SweepRecord *record = weir__sweep_record__unpack(NULL, kept.sizes[r], kept.records[r]);
      struct err err = ERR_NONE;
      if (r != at)
        bad = sweep_apply(sweep, record, &err);
      message_free(record);
    }
    assert_int_equal(bad, ERR_CORRUPT);
    sweep_free(sweep);
  }
  sweep = sweep_of(sweep_asha_text, NULL, 0);
  for (uint64_t i = 0; i < 2000; i++) { /* bytes of other records, one of them changed */
    int r = (int)(random_bits(11, i) % (uint64_t)kept.n);
    uint8_t *bytes = mem_new(kept.sizes[r] + 1);
    Weir__SweepRecord *record;
    struct err err = ERR_NONE;
    memcpy(bytes, kept.records[r], kept.sizes[r]);
    bytes[random_bits(12, i) % kept.sizes[r]] = (uint8_t)random_bits(13, i);
    if ((record = weir__sweep_record__unpack(NULL, kept.sizes[r], bytes)))
      sweep_apply(sweep, record, &err);
    message_free(record);
    free(bytes);
  }
  sweep_free(sweep);
  kept_free(&kept);
}

static void a_trials_spec_is_the_base_with_its_values(void **state) {
  struct sweep *sweep = sweep_of(sweep_asha_text, NULL, 0);
  Weir__SweepRecord *record;
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(sweep_next(sweep, &record), SWEEP_DECIDED);
  assert_int_equal(sweep_apply(sweep, record, &err), 0);
  message_free(record);
  assert_int_equal(sweep_trial_spec(sweep, &sweep->trials[0], &spec, &err), 0);
  assert_string_equal(spec->name, "search-0000");
  assert_int_equal(spec->train->steps, 90);
  assert_false(spec->train->has_epochs);
  assert_int_equal(spec->train->hold, 10);
  assert_int_equal(spec->eval->n_at, 2);
  assert_true(spec->train->optimizer->lr == strtod(sweep->trials[0].values[0], NULL));
  spec_free(spec);
  sweep_free(sweep);
}

static void a_value_of_all_of_train_does_not_take_a_trials_hold_away(void **state) {
  const char *const settings[] = {"space={train: ['{steps: 5, batch: 32, optimizer: {lr: 0.1}}', "
                                  "'{steps: 7, batch: 64, optimizer: {lr: 0.1}}']}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 1);
  Weir__RunSpec *spec;
  struct err err = ERR_NONE;
  (void)state;
  assert_next_suggestion(sweep, 0);
  assert_int_equal(sweep_trial_spec(sweep, &sweep->trials[0], &spec, &err), 0);
  assert_int_equal(spec->train->steps, 90);
  assert_int_equal(spec->train->hold, 10);
  assert_true(sweep->trials[0].cost == spec->train->batch);
  spec_free(spec);
  sweep_free(sweep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
      cmocka_unit_test(every_scheduler_has_one_log),
      cmocka_unit_test(asha_promotes_the_best_third_of_a_rung),
      cmocka_unit_test(halving_waits_for_all_of_a_rung),
      cmocka_unit_test(hyperband_runs_brackets_from_many_short_trials_to_few_long_ones),
      cmocka_unit_test(a_bracket_does_not_wait_for_the_one_before),
      cmocka_unit_test(median_stops_the_worse_half),
      cmocka_unit_test(a_trial_takes_its_samples_in_virtual_time),
      cmocka_unit_test(a_trial_begins_when_a_place_is_free_in_virtual_time),
      cmocka_unit_test(an_extended_sweep_goes_on_with_trials_that_waited),
      cmocka_unit_test(a_budget_that_is_not_larger_is_refused),
      cmocka_unit_test(many_bad_inputs_end_a_sweep),
      cmocka_unit_test(records_that_cannot_follow_are_refused),
      cmocka_unit_test(a_trials_spec_is_the_base_with_its_values),
      cmocka_unit_test(a_value_of_all_of_train_does_not_take_a_trials_hold_away),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

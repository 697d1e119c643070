/* What a sweep learns of other sweeps' trials. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

#define LATER(schedule)                                                                                      \
  "name: later\n"                                                                                            \
  "spec: base.yaml\n"                                                                                        \
  "objective: {metric: accuracy}\n"                                                                          \
  "search: {name: tpe, seed: 3, n_startup_trials: 4}\n"                                                      \
  "schedule: " schedule "\n"                                                                                 \
  "budget: {trials: 9}\n"                                                                                    \
  "concurrency: 2\n"                                                                                         \
  "space:\n"                                                                                                 \
  "  train.optimizer.lr: {log: [0.001, 0.3]}\n"
#define ONE_RUNG "{name: none, rungs: [30]}" /* the only rung, so tpe judges by it */

static const char later_text[] = LATER("{name: asha, rungs: [30, 90], eta: 3}");
static const char one_rung_text[] = LATER(ONE_RUNG);

/* The nearer lr is to 0.01, the better; every ninth trial diverges at once. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  double lr = strtod(trial->values[0], NULL), from = lr < 0.01 ? 0.01 / lr : lr / 0.01;
  if (trial->number % 9 == 4)
    return (struct sweep_outcome){.failure = "its training diverges"};
  return (struct sweep_outcome){.value = 1 / from + rung};
}

/* One that has ended. */
static struct sweep *play(const char *text) {
  struct kept kept;
  struct sweep *sweep = sweep_run_of(&(struct sweep_play){text, outcome_of, 1, false}, &kept);
  kept_free(&kept);
  return sweep;
}

/* What a sweep with these settings learns of another one; NULL: err says why it learns nothing. */
static Weir__SweepRecord *learn(const struct sweep *other, const char *const *settings, int n,
                                struct err *err) {
  struct sweep *later = sweep_of(later_text, settings, n);
  const struct sweep_other others[] = {{"search-012345", other}};
  Weir__SweepRecord *record = NULL;
  *err = ERR_NONE;
  sweep_learn(later, others, 1, &record, err);
  sweep_free(later);
  return record;
}

static void trials_are_taken_that_lie_in_the_space_and_reached_a_rung(void **state) {
  struct sweep *other = play(sweep_asha_text);
  struct err err;
  Weir__SweepRecord *record = learn(other, NULL, 0, &err);
  const Weir__SweepEarlier *earlier = record->earlier;
  size_t expected = 0, at = 0;
  (void)state;
  for (int i = 0; i < other->n_trials; i++) { /* of 10, 30 and 90 steps; the base's batch is 64 */
    const struct sweep_trial *trial = &other->trials[i];
    bool has_failed = trial->state == SWEEP_TRIAL_FAILED;
    if (strtod(trial->values[0], NULL) < 0.001 || strcmp(trial->values[1], "64") != 0 ||
        (trial->n_results < 2 && !has_failed))
      continue;
    expected++;
    assert_true(at < earlier->n_trials);
    assert_int_equal(earlier->trials[at]->number, trial->number);
    assert_int_equal(earlier->trials[at]->failed, has_failed);
    assert_int_equal(earlier->trials[at]->n_values, 1);
    assert_string_equal(earlier->trials[at]->values[0]->value, trial->values[0]);
    assert_int_equal(earlier->trials[at]->n_results, has_failed ? 0 : trial->n_results - 1);
    for (size_t r = 0; r < earlier->trials[at]->n_results; r++) {
      assert_int_equal(earlier->trials[at]->results[r]->rung, r);
      assert_true(strtod(earlier->trials[at]->results[r]->value, NULL) ==
                  sweep_value(other, trial, (int)r + 1));
    }
    at++;
  }
  assert_true(expected >= 3);
  assert_int_equal(earlier->n_trials, expected);
  message_free(record);
  sweep_free(other);
}

static void assert_nothing_to_learn(const struct sweep *other, const char *setting, const char *expected) {
  struct err err;
  if (learn(other, &setting, 1, &err) || err.code != ERR_INVALID || !strstr(err.text, expected))
    fail_msg("%s: '%s' lacks '%s'", setting, err.text, expected);
}

static void a_sweep_that_says_nothing_of_this_one_is_refused(void **state) {
  struct sweep *other = play(sweep_asha_text), *begun = sweep_of(sweep_asha_text, NULL, 0);
  static const char no_trial[] = "from: sweep 'search-012345' has no trial that is over";
  (void)state;
  assert_nothing_to_learn(other, "objective={metric: loss}",
                          "from: the objective of sweep 'search-012345' is accuracy, max, and not loss, min");
  assert_nothing_to_learn(other, "objective={metric: accuracy, goal: min}", "and not accuracy, min");
  assert_nothing_to_learn(other, "space={train.optimizer.lr: {log: [1e-9, 1e-8]}}", no_trial);
  assert_nothing_to_learn(other, "space={train.optimizer.momentum: {uniform: [0, 0.9]}}", no_trial);
  assert_nothing_to_learn(begun, "space={train.optimizer.lr: {log: [0.0001, 0.3]}}", no_trial);
  sweep_free(begun);
  sweep_free(other);
}

static void only_results_at_equal_steps_are_compared(void **state) {
  struct sweep *other = play(sweep_asha_text);
  static const char *const settings[] = {"schedule={name: asha, rungs: [20, 40], eta: 3}",
                                         "schedule={name: none}"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct err err;
    Weir__SweepRecord *record = learn(other, &settings[i], 1, &err);
    for (size_t t = 0; record && t < record->earlier->n_trials; t++) /* that a trial diverges holds anyway */
      assert_true(record->earlier->trials[t]->failed && record->earlier->trials[t]->n_results == 0);
    message_free(record);
  }
  sweep_free(other);
}

/* The last 1,000, as each of the two has 600. */
static void a_record_is_of_bounded_size(void **state) {
  static const char *const settings[] = {"budget={trials: 600}", "schedule={name: none, rungs: [30]}",
                                         "space={train.optimizer.lr: {log: [0.001, 0.3]}}"};
  struct sweep *other = sweep_of(sweep_asha_text, settings, 3), *later = sweep_of(later_text, NULL, 0);
  const struct sweep_other others[] = {{"a", other}, {"b", other}};
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  while (other->n_trials < 600 || other->n_running > 0) {
    if (sweep_next(other, &record) == SWEEP_DECIDED) {
      assert_int_equal(sweep_apply(other, record, &err), 0);
      message_free(record);
    }
    for (int i = 0; i < other->n_trials; i++)
      sweep_tell(other, (uint32_t)i, 0, &(struct sweep_outcome){.value = 0.5});
  }
  assert_int_equal(sweep_learn(later, others, 2, &record, &err), 0);
  assert_int_equal(record->earlier->n_trials, 1000);
  assert_int_equal(record->earlier->trials[0]->from, 0);
  assert_int_equal(record->earlier->trials[0]->number, 200);
  assert_int_equal(record->earlier->trials[999]->from, 1);
  message_free(record);
  sweep_free(later);
  sweep_free(other);
}

/* The log of a sweep that begins with a record. */
static struct sweep *play_later(const Weir__SweepRecord *first, uint64_t seed, struct kept *kept) {
  const struct sweep_play later = {one_rung_text, outcome_of, seed, seed > 1};
  struct sweep *sweep = sweep_of(one_rung_text, NULL, 0);
  *kept = (struct kept){0};
  if (first)
    sweep_take(sweep, first, kept);
  return sweep_play_on(sweep, &later, kept);
}

/* Of what its trials have at the first rung. */
static double mean_value(const struct sweep *sweep) {
  double sum = 0;
  for (int i = 0; i < sweep->n_trials; i++)
    sum += outcome_of(&(struct sweep_trial){.number = 0, .values = sweep->trials[i].values}, 0).value;
  return sum / sweep->n_trials;
}

static void what_was_learned_is_in_the_log_and_guides_the_searcher(void **state) {
  static const char *const one_rung[] = {"schedule=" ONE_RUNG};
  struct sweep *other = play(sweep_asha_text), *warm, *cold;
  struct kept first, again, without;
  struct err err;
  Weir__SweepRecord *record = learn(other, one_rung, 1, &err);
  (void)state;
  sweep_free(other); /* the sweep does not depend on it any more */
  warm = play_later(record, 1, &first);
  for (uint64_t seed = 2; seed < 8; seed++) { /* with deaths */
    sweep_free(play_later(record, seed, &again));
    assert_same(&first, &again);
    kept_free(&again);
  }
  cold = play_later(NULL, 1, &without);
  assert_true(warm->n_earlier > 0 && cold->n_earlier == 0);
  assert_string_not_equal(warm->trials[0].values[0], cold->trials[0].values[0]);
  assert_true(mean_value(warm) > mean_value(cold));
  sweep_free(cold);
  sweep_free(warm);
  kept_free(&without);
  kept_free(&first);
  message_free(record);
}

static void what_a_grid_has_tried_elsewhere_it_does_not_try_again(void **state) {
  static const char *const first[] = {"search={name: grid}", "schedule={name: none, rungs: [30]}",
                                      "space={train.optimizer.lr: [0.001, 0.01, 0.1]}"};
  static const char *const wider[] = {"search={name: grid}", "schedule={name: none, rungs: [30]}",
                                      "space={train.optimizer.lr: [0.001, 0.003, 0.01, 0.03, 0.1]}"};
  struct sweep *other = sweep_of(later_text, first, 3), *later = sweep_of(later_text, wider, 3);
  const struct sweep_other others[] = {{"a", other}};
  Weir__SweepRecord *record;
  struct err err = ERR_NONE;
  (void)state;
  for (struct sweep *sweep = other; !later->end;) {
    enum sweep_turn turn = sweep_next(sweep, &record);
    if (turn == SWEEP_OVER) {
      assert_int_equal(sweep_learn(later, others, 1, &record, &err), 0);
      sweep = later;
    } else if (turn == SWEEP_WAITS) {
      for (int i = 0; i < sweep->n_trials; i++)
        sweep_tell(sweep, (uint32_t)i, 0, &(struct sweep_outcome){.value = 0.5});
      continue;
    }
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    message_free(record);
  }
  assert_int_equal(other->n_trials, 3);
  assert_int_equal(later->n_trials, 2);
  assert_string_equal(later->trials[0].values[0], "0.003");
  assert_string_equal(later->trials[1].values[0], "0.03");
  sweep_free(later);
  sweep_free(other);
}

static void damaged_records_of_others_are_refused(void **state) {
  struct sweep *other = play(sweep_asha_text), *later = sweep_of(later_text, NULL, 0);
  struct err err;
  Weir__SweepRecord *record = learn(other, NULL, 0, &err);
  size_t size = weir__sweep_record__get_packed_size(record);
  uint8_t *packed = mem_new(size), *bytes = mem_new(size);
  int n_refused = 0;
  (void)state;
  weir__sweep_record__pack(record, packed);
  for (uint64_t i = 0; i < 3000; i++) {
    Weir__SweepRecord *damaged;
    memcpy(bytes, packed, size);
    bytes[random_bits(21, i) % size] = (uint8_t)random_bits(31, i);
    if (!(damaged = weir__sweep_record__unpack(NULL, size, bytes)))
      continue;
    err = ERR_NONE;
    if (later->n_records > 0) {
      sweep_free(later);
      later = sweep_of(later_text, NULL, 0);
    }
    if (sweep_apply(later, damaged, &err)) {
      assert_int_equal(err.code, ERR_CORRUPT);
      assert_int_equal(later->n_earlier, 0);
      n_refused++;
    }
    message_free(damaged);
  }
  assert_true(n_refused > 0);
  err = ERR_NONE;
  if (later->n_records == 0)
    assert_int_equal(sweep_apply(later, record, &err), 0);
  assert_int_equal(sweep_apply(later, record, &err), ERR_CORRUPT); /* it is the first, or none */
  free(packed);
  free(bytes);
  message_free(record);
  sweep_free(later);
  sweep_free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trials_are_taken_that_lie_in_the_space_and_reached_a_rung),
      cmocka_unit_test(a_sweep_that_says_nothing_of_this_one_is_refused),
      cmocka_unit_test(only_results_at_equal_steps_are_compared),
      cmocka_unit_test(a_record_is_of_bounded_size),
      cmocka_unit_test(what_was_learned_is_in_the_log_and_guides_the_searcher),
      cmocka_unit_test(what_a_grid_has_tried_elsewhere_it_does_not_try_again),
      cmocka_unit_test(damaged_records_of_others_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Population based training: who is replaced by a fork of whom, and with which values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/specs/spec_fork.h"
#include "common/sweep/explore.h"
#include "tests/support/common/sweep_play.h"
#include "tests/support/common/sweep_specs.h"

enum { POPULATION = 8, RUNGS = 5, REPLACED = 2 /* a quarter */ };

/* A function of the trial and the rung alone. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial, int rung) {
  uint64_t bits = random_bits(random_key(9, trial->number, 0, 0), (uint64_t)rung);
  return (struct sweep_outcome){.value = (double)(bits >> 40) / 16777216 + rung};
}

/* The same, but trials 1, 2, 3 and 5 diverge at the second rung, and most of those that come later at the
   fourth. */
static struct sweep_outcome diverging(const struct sweep_trial *trial, int rung) {
  static const uint32_t ends[] = {1, 2, 3, 5};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (trial->number == ends[i] && rung == 1)
      return (struct sweep_outcome){.failure = "its training diverges"};
  if (trial->number > 8 && trial->number % 4 != 0 && rung == 3)
    return (struct sweep_outcome){.failure = "its training diverges"};
  return outcome_of(trial, rung);
}

static struct sweep *play(const char *text, uint64_t seed, bool is_killed, struct kept *kept) {
  return sweep_run_of(&(struct sweep_play){text, outcome_of, seed, is_killed}, kept);
}

/* A text with one line's value changed; freed by the caller. */
static char *text_with(const char *from, const char *to) {
  const char *at = strstr(sweep_pbt_text, from);
  assert_non_null(at);
  return mem_printf("%.*s%s%s", (int)(at - sweep_pbt_text), sweep_pbt_text, to, at + strlen(from));
}

static void the_log_does_not_depend_on_when_results_come_nor_on_deaths(void **state) {
  struct kept first;
  (void)state;
  sweep_free(play(sweep_pbt_text, 1, false, &first));
  for (uint64_t seed = 2; seed < 14; seed++) {
    struct kept other;
    sweep_free(play(sweep_pbt_text, seed, seed % 2, &other));
    assert_same(&first, &other);
    kept_free(&other);
  }
  kept_free(&first);
}

/* How many of the trials that came to a rung were better there; those that failed are the worst. */
static int place_of(const struct sweep *sweep, uint32_t number, int rung, int *n_members) {
  const struct sweep_trial *trial = &sweep->trials[number];
  int n_better = 0;
  *n_members = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *other = &sweep->trials[i];
    if (other->begin > rung || other->n_results <= rung)
      continue;
    ++*n_members;
    n_better += trial->n_results <= rung || sweep_value(sweep, other, rung) > sweep_value(sweep, trial, rung);
  }
  return n_better;
}

static void the_worst_of_a_rung_are_replaced_by_forks_of_the_best(void **state) {
  struct kept kept;
  struct sweep *sweep = play(sweep_pbt_text, 1, false, &kept);
  int n_forks[RUNGS] = {0}, n_members;
  (void)state;
  assert_int_equal(sweep->n_trials, POPULATION + (RUNGS - 1) * REPLACED);
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->parent >= 0) {
      n_forks[trial->begin - 1]++;
      assert_true(place_of(sweep, (uint32_t)trial->parent, trial->begin - 1, &n_members) < REPLACED);
      assert_memory_equal(trial->results, sweep->trials[trial->parent].results,
                          (size_t)trial->begin * sizeof *trial->results);
    }
    if (trial->replaced >= 0) {
      assert_true(place_of(sweep, (uint32_t)i, trial->replaced, &n_members) >= POPULATION - REPLACED);
      assert_int_equal(n_members, POPULATION);
      assert_int_equal(trial->state, SWEEP_TRIAL_STOPPED);
    } else {
      assert_int_equal(trial->state, SWEEP_TRIAL_DONE);
    }
  }
  for (int rung = 0; rung < RUNGS; rung++)
    assert_int_equal(n_forks[rung], rung < RUNGS - 1 ? REPLACED : 0);
  sweep_free(sweep);
  kept_free(&kept);
}

static void trials_that_fail_are_replaced_and_the_population_keeps_its_size(void **state) {
  struct kept kept, other;
  struct sweep_play first = {sweep_pbt_text, diverging, 1, false},
                    second = {sweep_pbt_text, diverging, 2, true};
  struct sweep *sweep = sweep_run_of(&first, &kept);
  int n_done = 0;
  (void)state;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    n_done += trial->state == SWEEP_TRIAL_DONE;
    if (trial->state == SWEEP_TRIAL_FAILED)
      assert_int_equal(trial->replaced, trial->n_results);
    if (trial->parent >= 0)
      assert_true(sweep->trials[trial->parent].n_results >= trial->begin);
  }
  assert_int_equal(n_done, POPULATION);
  sweep_free(sweep);
  sweep_free(sweep_run_of(&second, &other));
  assert_same(&kept, &other);
  kept_free(&kept);
  kept_free(&other);
}

static void nothing_is_replaced_before_the_burn_in(void **state) {
  char *text = text_with("quantile: 0.25", "burn_in: 30");
  struct kept kept;
  struct sweep *sweep = play(text, 1, false, &kept);
  (void)state;
  assert_int_equal(sweep->n_trials, POPULATION + 2 * REPLACED);
  for (int i = POPULATION; i < sweep->n_trials; i++)
    assert_true(sweep->rungs[sweep->trials[i].begin - 1] >= 30);
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

/* Whether a value is its parent's by one of the factors, or as near as bounds and six digits allow. */
static bool is_moved(const struct dimension *dimension, double value, double was) {
  static const double factors[] = {0.8, 1.2};
  for (int i = 0; i < 2; i++) {
    double moved = fmin(fmax(was * factors[i], dimension->low), dimension->high);
    if (fabs(value - moved) <= 1e-5 * fabs(moved))
      return true;
  }
  return false;
}

static void numbers_go_by_a_factor_within_their_bounds(void **state) {
  char *text = text_with("quantile: 0.25", "resample_probability: 0");
  struct kept kept;
  struct sweep *sweep = play(text, 1, false, &kept);
  (void)state;
  for (int i = POPULATION; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i], *parent = &sweep->trials[trial->parent];
    double momentum, was;
    assert_true(is_moved(&sweep->space->dimensions[0], strtod(trial->values[0], NULL),
                         strtod(parent->values[0], NULL)));
    if (!trial->values[2] || !parent->values[2])
      continue;
    momentum = strtod(trial->values[2], NULL); /* of a step: by one at least, to the bound at most */
    was = strtod(parent->values[2], NULL);
    assert_true(momentum >= 0.8 && momentum <= 0.98);
    assert_true(fabs(momentum - was) > 0.019 || was < 0.81 || was > 0.97);
  }
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

/* Of many forks of one parent, those whose rate was drawn anew. */
static int count_drawn(const char *setting, int n) {
  struct sweep *sweep = sweep_of(sweep_pbt_text, &setting, 1);
  const struct dimension *rate = &sweep->space->dimensions[0];
  double position[3] = {0.5, 0, 0.5}, point[3];
  char *values[3] = {mem_strdup("0.00547723"), mem_strdup("sgd"), mem_strdup("0.9")};
  struct sweep_trial parent = {.point = position, .values = values};
  char text[SPACE_NUMBER_SIZE];
  int n_drawn = 0;
  for (int i = 0; i < n; i++) {
    explore(sweep, (uint32_t)i, &parent, point);
    assert_true(space_holds(sweep->space, point));
    n_drawn += !is_moved(rate, strtod(space_text(rate, point[0], text), NULL), 0.00547723);
  }
  for (int i = 0; i < 3; i++)
    free(values[i]);
  sweep_free(sweep);
  return n_drawn;
}

static void values_are_drawn_anew_with_the_probability_that_is_given(void **state) {
  (void)state;
  assert_int_equal(count_drawn("schedule.resample_probability=0", 2000), 0);
  assert_int_equal(count_drawn("schedule.resample_probability=1", 2000), 2000);
  assert_in_range(count_drawn("schedule.resample_probability=0.25", 2000), 400, 600);
}

static void a_forks_spec_is_one_that_its_parent_may_have_as_a_fork(void **state) {
  struct kept kept;
  struct sweep *sweep = play(sweep_pbt_text, 1, false, &kept);
  (void)state;
  for (int i = POPULATION; i < sweep->n_trials; i++) {
    struct sweep_trial child = sweep->trials[i], parent = sweep->trials[child.parent];
    Weir__RunSpec *spec, *of_parent;
    struct err err = ERR_NONE;
    child.n_results = parent.n_results = child.begin; /* as it was then */
    assert_int_equal(sweep_trial_spec(sweep, &child, &spec, &err), 0);
    assert_int_equal(sweep_trial_spec(sweep, &parent, &of_parent, &err), 0);
    assert_int_equal(spec_fork_check(of_parent, spec, &err), 0);
    assert_int_equal(spec->train->has_hold ? spec->train->hold : spec->train->steps, 10 * (child.begin + 1));
    spec_free(spec);
    spec_free(of_parent);
  }
  sweep_free(sweep);
  kept_free(&kept);
}

static void forks_count_in_the_budget_of_steps(void **state) {
  char *text = text_with("budget: {trials: 8}", "budget: {trials: 8, steps: 250}");
  struct kept kept;
  struct sweep *sweep = play(text, 1, false, &kept);
  (void)state;
  assert_int_equal(sweep->begun_steps, 250); /* three rungs of eight segments of ten steps, and one more */
  assert_string_equal(sweep->end, "nothing is left to do");
  sweep_free(sweep);
  kept_free(&kept);
  free(text);
}

/* Of any of the three runs of a trial: in an order that differs from play to play. */
static struct sweep_outcome outcome_of_a_repeat(const struct sweep_trial *trial, int rung) {
  static uint64_t draws;
  struct sweep_outcome outcome = outcome_of(trial, rung);
  outcome.repeat = (uint32_t)(random_bits(17, draws++) % 3);
  outcome.value += outcome.repeat;
  return outcome;
}

static void with_repeats_each_run_of_a_fork_goes_on_from_the_same_repeat(void **state) {
  char *text = text_with("concurrency: 3", "concurrency: 3\nrepeats: 3");
  struct kept kept, other;
  struct sweep *sweep = sweep_run_of(&(struct sweep_play){text, outcome_of_a_repeat, 1, false}, &kept);
  (void)state;
  assert_int_equal(sweep->n_trials, POPULATION + (RUNGS - 1) * REPLACED);
  assert_int_equal(sweep->begun_steps, 3 * 10 * POPULATION * RUNGS);
  for (uint32_t repeat = 0; repeat < 3; repeat++)
    for (int i = POPULATION; i < sweep->n_trials; i++) {
      struct sweep_trial child = sweep->trials[i], parent = sweep->trials[child.parent];
      Weir__RunSpec *spec, *of_parent;
      struct err err = ERR_NONE;
      child.n_results = parent.n_results = child.begin; /* as it was then */
      assert_int_equal(sweep_repeat_spec(sweep, &child, repeat, &spec, &err), 0);
      assert_int_equal(sweep_repeat_spec(sweep, &parent, repeat, &of_parent, &err), 0);
      assert_int_equal(spec_fork_check(of_parent, spec, &err), 0);
      assert_int_equal(spec->train->seed, of_parent->train->seed);
      spec_free(spec);
      spec_free(of_parent);
    }
  sweep_free(sweep);
  sweep_free(sweep_run_of(&(struct sweep_play){text, outcome_of_a_repeat, 2, true}, &other));
  assert_same(&kept, &other);
  kept_free(&kept);
  kept_free(&other);
  free(text);
}

static void with_repeats_the_budget_takes_all_runs_of_the_population_to_the_first_rung(void **state) {
  static const char *const settings[][2] = {{"repeats=3", "budget={trials: 8, steps: 239}"},
                                            {"repeats=3", "budget={trials: 8, steps: 240}"}};
  struct err err;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_pbt_text, settings[0], 2, &err);
  (void)state;
  assert_null(spec);
  assert_non_null(strstr(err.text,
                         "budget.steps: 239 steps do not take the 8 trials of the population to the "
                         "first rung, at step 10, in all repeats"));
  spec = sweep_spec_of(sweep_pbt_text, settings[1], 2, &err);
  assert_non_null(spec);
  message_free(spec);
}

static void assert_refused(struct sweep *sweep, const Weir__SweepRecord *record) {
  struct err err = ERR_NONE;
  int n = sweep->n_trials, n_running = sweep->n_running;
  assert_int_equal(sweep_apply(sweep, record, &err), ERR_CORRUPT);
  assert_int_equal(sweep->n_trials, n);
  assert_int_equal(sweep->n_running, n_running);
}

/* Of trials that are not there, at another rung, of one that replaces its parent, or with a value too few. */
static void assert_wrong_forks_refused(struct sweep *sweep, Weir__SweepRecord *record) {
  Weir__SweepFork *fork = record->fork;
  uint32_t *const fields[] = {&fork->trial, &fork->parent, &fork->rung, &fork->replaced};
  uint32_t replaced = fork->replaced;
  for (int f = 0; f < 4; f++) {
    *fields[f] += 1;
    if (f == 0 || f == 2)
      assert_refused(sweep, record);
    *fields[f] += 999;
    assert_refused(sweep, record);
    *fields[f] -= 1000;
  }
  fork->replaced = fork->parent;
  assert_refused(sweep, record);
  fork->replaced = replaced;
  fork->n_values--;
  assert_refused(sweep, record);
  fork->n_values++;
}

static void records_that_cannot_follow_are_refused(void **state) {
  struct kept kept;
  struct sweep *sweep = play(sweep_pbt_text, 1, false, &kept);
  (void)state;
  sweep_free(sweep);
  sweep = sweep_of(sweep_pbt_text, NULL, 0);
  for (int r = 0; r < kept.n; r++) {
    Weir__SweepRecord *record = weir__sweep_record__unpack(NULL, kept.sizes[r], kept.records[r]);
    struct err err = ERR_NONE;
    if (record->fork)
      assert_wrong_forks_refused(sweep, record);
    assert_int_equal(sweep_apply(sweep, record, &err), 0);
    message_free(record);
  }
  sweep_free(sweep);
  kept_free(&kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_log_does_not_depend_on_when_results_come_nor_on_deaths),
      cmocka_unit_test(the_worst_of_a_rung_are_replaced_by_forks_of_the_best),
      cmocka_unit_test(trials_that_fail_are_replaced_and_the_population_keeps_its_size),
      cmocka_unit_test(nothing_is_replaced_before_the_burn_in),
      cmocka_unit_test(numbers_go_by_a_factor_within_their_bounds),
      cmocka_unit_test(values_are_drawn_anew_with_the_probability_that_is_given),
      cmocka_unit_test(a_forks_spec_is_one_that_its_parent_may_have_as_a_fork),
      cmocka_unit_test(forks_count_in_the_budget_of_steps),
      cmocka_unit_test(with_repeats_each_run_of_a_fork_goes_on_from_the_same_repeat),
      cmocka_unit_test(with_repeats_the_budget_takes_all_runs_of_the_population_to_the_first_rung),
      cmocka_unit_test(records_that_cannot_follow_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

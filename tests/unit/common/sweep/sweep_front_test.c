/* Sweeps of several objectives: Pareto fronts, and what is made of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/sweep/front.h"
#include "common/sweep/sweep_spec.h"
#include "tests/support/common/sweep_specs.h"

enum { POINTS_MAX = 60, OBJECTIVES_MAX = 4, TRIALS = 80, MANY = SWEEP_TRIALS_MAX };

#define SEVERAL "objective=[{metric: accuracy}, {metric: loss}]"

static double draw(uint64_t seed, uint64_t at) {
  return (double)(random_bits(seed, at) >> 11) / (double)(UINT64_C(1) << 53);
}

/* By the definition alone. */
static bool is_dominated(const double *values, int k, int by, int point) {
  int better = 0, worse = 0;
  for (int o = 0; o < k; o++) {
    better += values[by * k + o] < values[point * k + o];
    worse += values[by * k + o] > values[point * k + o];
  }
  return better > 0 && worse == 0;
}

/* Front after front is taken away. */
static void peel(const double *values, int n, int k, int *ranks) {
  int left = n;
  for (int i = 0; i < n; i++)
    ranks[i] = -1;
  for (int rank = 0; left > 0; rank++) {
    bool is_in[POINTS_MAX];
    for (int i = 0; i < n; i++) {
      is_in[i] = ranks[i] < 0;
      for (int j = 0; j < n && is_in[i]; j++)
        is_in[i] = ranks[j] >= 0 || !is_dominated(values, k, j, i);
    }
    for (int i = 0; i < n; i++)
      if (is_in[i]) {
        ranks[i] = rank;
        left--;
      }
  }
}

static void fronts_are_those_that_peeling_finds(void **state) {
  double values[POINTS_MAX * OBJECTIVES_MAX], order[POINTS_MAX];
  int expected[POINTS_MAX], found[POINTS_MAX];
  (void)state;
  for (uint64_t seed = 0; seed < 300; seed++) {
    int n = (int)(seed % POINTS_MAX) + 1, k = (int)(seed % OBJECTIVES_MAX) + 1;
    for (int i = 0; i < n * k; i++) /* of few values in every third world, so that points are equal */
      values[i] = seed % 3 ? draw(seed, (uint64_t)i) : floor(4 * draw(seed, (uint64_t)i));
    peel(values, n, k, expected);
    front_ranks(values, n, k, found);
    front_order(values, n, k, order);
    for (int i = 0; i < n; i++) {
      assert_int_equal(found[i], expected[i]);
      assert_true(order[i] >= expected[i] && order[i] <= expected[i] + 0.5);
    }
  }
}

static void the_ends_of_a_front_come_first_and_its_crowded_points_last(void **state) {
  static const double values[] = {0, 10, 1, 8, 1.1, 7.9, 1.2, 7.8, 6, 2, 10, 0};
  double order[6];
  (void)state;
  front_order(values, 6, 2, order);
  assert_true(order[0] == 0 && order[5] == 0);
  for (int i = 1; i < 5; i++)
    assert_true(order[i] > 0 && order[i] < 1);
  assert_true(order[4] < order[1] && order[1] < order[2]); /* the point amid two that are close is the last */
}

/* Points of two objectives on one line, of which none dominates another, or anywhere. */
static void many_points(double *values, int k, bool is_line) {
  for (int i = 0; i < MANY; i++) {
    for (int o = 0; o < k; o++)
      values[i * k + o] = draw(4, (uint64_t)(i * k + o));
    if (is_line)
      values[i * k + 1] = -values[i * k];
  }
}

static void ten_thousand_points_are_ranked_without_comparing_all_pairs(void **state) {
  const uint64_t pairs = (uint64_t)MANY * (MANY - 1) / 2;
  double *values = mem_new(MANY * OBJECTIVES_MAX * sizeof *values);
  int *ranks = mem_new(MANY * sizeof *ranks);
  (void)state;
  for (int is_line = 0; is_line < 2; is_line++) {
    many_points(values, 2, is_line);
    assert_true(front_ranks(values, MANY, 2, ranks) <= (uint64_t)MANY * 14); /* 14: its logarithm */
    for (int o = 2; o < 4; o++) {
      many_points(values, o + 1, is_line);
      assert_true(front_ranks(values, MANY, o + 1, ranks) <= pairs);
    }
  }
  many_points(values, 3, false);
  assert_true(front_ranks(values, MANY, 3, ranks) < pairs / 10);
  free(values);
  free(ranks);
}

/* What a trial is worth, by its number. */
static struct sweep_outcome outcome_of(const struct sweep_trial *trial) {
  return (struct sweep_outcome){.value = floor(20 * draw(5, trial->number)) / 20,
                                .others = {floor(20 * draw(6, trial->number)) / 20}};
}

/* To its end; results come from the highest number on where it is backwards. Returns the records' bytes. */
static uint8_t *run_to_end(struct sweep *sweep, bool is_backwards, size_t *size) {
  struct err err = ERR_NONE;
  Weir__SweepRecord *record;
  uint8_t *bytes = NULL;
  *size = 0;
  for (enum sweep_turn turn; (turn = sweep_next(sweep, &record)) != SWEEP_OVER;) {
    if (turn == SWEEP_DECIDED) {
      size_t more = weir__sweep_record__get_packed_size(record);
      bytes = realloc(bytes, *size + more);
      weir__sweep_record__pack(record, bytes + *size);
      *size += more;
      assert_int_equal(sweep_apply(sweep, record, &err), 0);
      message_free(record);
      continue;
    }
    for (int i = 0, told = 0; i < sweep->n_trials && !told; i++) {
      const struct sweep_trial *trial = &sweep->trials[is_backwards ? sweep->n_trials - 1 - i : i];
      struct sweep_outcome outcome = outcome_of(trial);
      if (trial->state != SWEEP_TRIAL_RUNNING || trial->is_known)
        continue;
      if (trial->number == 7)
        outcome.others[0] = NAN;
      sweep_tell(sweep, trial->number, trial->n_results, &outcome);
      told = 1;
    }
  }
  return bytes;
}

static void a_sweep_has_the_front_of_its_trials_and_the_same_log_in_any_order(void **state) {
  static const char *const settings[] = {SEVERAL, "schedule={name: none}", "budget={trials: 60}",
                                         "search={name: tpe, seed: 2}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 4);
  struct sweep *backwards = sweep_of(sweep_asha_text, settings, 4);
  const struct sweep_front *front = &sweep->front;
  double values[2 * POINTS_MAX];
  int n = 0, trials[POINTS_MAX], found = 0;
  bool is_best_there = false;
  size_t size, size_backwards;
  uint8_t *bytes = run_to_end(sweep, false, &size);
  uint8_t *bytes_backwards = run_to_end(backwards, true, &size_backwards);
  (void)state;
  assert_int_equal(size, size_backwards);
  assert_memory_equal(bytes, bytes_backwards, size);
  assert_int_equal(sweep->trials[7].state, SWEEP_TRIAL_FAILED);
  for (int i = 0; i < sweep->n_trials; i++) {
    struct sweep_outcome outcome = outcome_of(&sweep->trials[i]);
    if (i == 7)
      continue;
    values[2 * n] = -outcome.value; /* accuracy: more is better */
    values[2 * n + 1] = outcome.others[0];
    trials[n++] = i;
  }
  for (int i = 0; i < n; i++) {
    bool is_front = true;
    for (int j = 0; j < n; j++)
      is_front &= !is_dominated(values, 2, j, i);
    if (is_front)
      assert_int_equal(front->trials[found++], trials[i]);
  }
  assert_int_equal(found, front->n);
  assert_true(found > 1);
  for (int i = 0; i < front->n; i++) {
    const struct sweep_trial *best = sweep_best(sweep);
    assert_true(sweep_value(sweep, best, 0) >= sweep_value(sweep, &sweep->trials[front->trials[i]], 0));
    is_best_there |= front->trials[i] == (int)best->number;
  }
  assert_true(is_best_there);
  free(bytes);
  free(bytes_backwards);
  sweep_free(sweep);
  sweep_free(backwards);
}

/* A trial begins, with some value. */
static void begin(struct sweep *sweep) {
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  Weir__SweepSuggestion suggestion = WEIR__SWEEP_SUGGESTION__INIT;
  Weir__SweepValue value = WEIR__SWEEP_VALUE__INIT, *values[] = {&value};
  struct err err = ERR_NONE;
  value.path = "train.optimizer.lr";
  value.value = "0.1";
  suggestion.trial = (uint32_t)sweep->n_trials;
  suggestion.values = values;
  suggestion.n_values = 1;
  record.suggestion = &suggestion;
  assert_int_equal(sweep_apply(sweep, &record, &err), 0);
}

/* It comes to its next rung with these values, of which less is better; NULL: it fails. */
static void come(struct sweep *sweep, uint32_t trial, const double *at) {
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  Weir__SweepResult result = WEIR__SWEEP_RESULT__INIT;
  char texts[OBJECTIVES_MAX][40], *others[OBJECTIVES_MAX];
  struct err err = ERR_NONE;
  for (int o = 0; at && o < sweep->n_objectives; o++) {
    snprintf(texts[o], sizeof texts[o], "%.17g", sweep->are_max[o] ? -at[o] : at[o]);
    others[o] = texts[o];
  }
  result.trial = trial;
  result.rung = (uint32_t)sweep->trials[trial].n_results;
  result.value = at ? others[0] : NULL;
  result.failure = at ? NULL : "its training diverges";
  result.others = others + 1;
  result.n_others = at ? (size_t)sweep->n_objectives - 1 : 0;
  record.result = &result;
  assert_int_equal(sweep_apply(sweep, &record, &err), 0);
}

static void promote(struct sweep *sweep, uint32_t trial) {
  Weir__SweepRecord record = WEIR__SWEEP_RECORD__INIT;
  Weir__SweepPromotion promotion = WEIR__SWEEP_PROMOTION__INIT;
  struct err err = ERR_NONE;
  promotion.trial = trial;
  promotion.rung = (uint32_t)sweep->trials[trial].n_results;
  record.promotion = &promotion;
  assert_int_equal(sweep_apply(sweep, &record, &err), 0);
}

/* By the definition, from all trials. */
static void assert_front(const struct sweep *sweep, double values[][OBJECTIVES_MAX]) {
  int furthest = 0, n = 0;
  for (int i = 0; i < sweep->n_trials; i++)
    if (sweep->trials[i].state != SWEEP_TRIAL_FAILED && sweep->trials[i].n_results > furthest)
      furthest = sweep->trials[i].n_results;
  for (int i = 0; i < sweep->n_trials; i++) {
    bool is_there = furthest > 0 && sweep->trials[i].n_results == furthest &&
                    sweep->trials[i].state != SWEEP_TRIAL_FAILED;
    for (int j = 0; j < sweep->n_trials && is_there; j++)
      is_there = sweep->trials[j].n_results < furthest || sweep->trials[j].state == SWEEP_TRIAL_FAILED ||
                 !is_dominated(values[0], OBJECTIVES_MAX, j, i);
    if (is_there)
      assert_int_equal(sweep->front.trials[n++], i);
  }
  assert_int_equal(n, sweep->front.n);
}

/* Of k objectives, two at least; those behind the second have no metric. */
static struct sweep *bare_sweep(const char *schedule, int k) {
  const char *settings[] = {SEVERAL, schedule, "budget={trials: 10000}", "concurrency=60",
                            "space={train.optimizer.lr: {log: [0.001, 1]}}"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 5);
  sweep->n_objectives = k;
  return sweep;
}

static void a_sweeps_front_goes_along_with_results_and_failures(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 40; seed++) {
    struct sweep *sweep = bare_sweep("schedule={name: none, rungs: [1, 2, 3]}", 2);
    double values[POINTS_MAX][OBJECTIVES_MAX] = {{0}};
    for (int i = 0; i < POINTS_MAX; i++)
      begin(sweep);
    for (uint64_t turn = 0; turn < 3 * POINTS_MAX; turn++) {
      uint32_t number = (uint32_t)(random_bits(seed, 3 * turn) % POINTS_MAX);
      struct sweep_trial *trial = &sweep->trials[number];
      if (trial->state == SWEEP_TRIAL_DONE || trial->state == SWEEP_TRIAL_FAILED)
        continue;
      if (trial->state == SWEEP_TRIAL_WAITING)
        promote(sweep, number);
      for (int o = 0; o < 2; o++) /* few values, so that some are equal */
        values[number][o] = floor(8 * draw(seed, 3 * turn + 1 + (uint64_t)o));
      come(sweep, number, random_bits(seed + 99, turn) % 5 ? values[number] : NULL);
      assert_front(sweep, values);
    }
    sweep_free(sweep);
  }
}

static void a_front_of_ten_thousand_trials_is_there_without_comparing_any_of_them_again(void **state) {
  (void)state;
  for (int k = 2; k <= 3; k++) {
    struct sweep *sweep = bare_sweep("schedule={name: none}", k);
    double at[OBJECTIVES_MAX];
    for (int i = 0; i < MANY; i++) {
      for (int o = 0; o < OBJECTIVES_MAX; o++)
        at[o] = draw(7, (uint64_t)(i * OBJECTIVES_MAX + o));
      begin(sweep);
      come(sweep, (uint32_t)i, at);
    }
    assert_in_range(sweep->front.n, 5, 200);
    assert_true(sweep->front.compared < (uint64_t)MANY * 100);
    sweep_free(sweep);
  }
}

/* Two dimensions u and v: u is the trade between the objectives, and v is best at one place for both. */
static double distance_from_set(const char *searcher) {
  const char *settings[] = {SEVERAL,
                            "schedule={name: none}",
                            "budget={trials: 80}",
                            searcher,
                            "space={train.optimizer.lr: {uniform: [0.1, 1]}, train.clip_norm: {uniform: "
                            "[0.1, 1]}}",
                            "concurrency=1"};
  struct sweep *sweep = sweep_of(sweep_asha_text, settings, 6);
  Weir__SweepRecord *record;
  const struct sweep_trial *trial;
  struct err err = ERR_NONE;
  double sum = 0, away;
  for (enum sweep_turn turn; (turn = sweep_next(sweep, &record)) != SWEEP_OVER;) {
    if (turn == SWEEP_DECIDED) {
      assert_int_equal(sweep_apply(sweep, record, &err), 0);
      message_free(record);
      continue;
    }
    trial = &sweep->trials[sweep->n_trials - 1];
    away = fabs(trial->point[1] - 0.3);
    sweep_tell(
        sweep, trial->number, 0,
        &(struct sweep_outcome){.value = 1 - trial->point[0] - away, .others = {1 - trial->point[0] + away}});
  }
  for (int i = TRIALS / 2; i < TRIALS; i++)
    sum += fabs(sweep->trials[i].point[1] - 0.3);
  sweep_free(sweep);
  return sum / (TRIALS / 2.0);
}

static void tpe_comes_closer_to_the_set_than_random_does(void **state) {
  (void)state;
  assert_true(distance_from_set("search={name: tpe, seed: 1}") <
              0.6 * distance_from_set("search={name: random, seed: 1}"));
}

static void assert_refused(const char *objective, const char *setting, const char *expected) {
  const char *settings[] = {objective, "schedule={name: none}", setting};
  struct err err = ERR_NONE;
  Weir__SweepSpec *spec = sweep_spec_of(sweep_asha_text, settings, setting ? 3 : 2, &err);
  if (spec || !strstr(err.text, expected))
    fail_msg("%s, %s: '%s' lacks '%s'", objective, setting, err.text, expected);
}

static void what_ranks_by_one_objective_is_refused_by_name(void **state) {
  (void)state;
  assert_refused(SEVERAL, "search={name: gp}", "search.name: 'gp' models the values of one objective");
  assert_refused(SEVERAL, "search={name: cmaes}", "search.name: 'cmaes' models");
  assert_refused(SEVERAL, "search={name: bohb}", "search.name: 'bohb' models");
  assert_refused(SEVERAL, "schedule={name: asha, rungs: [1, 2]}",
                 "schedule.name: 'asha' ranks trials by one objective");
  assert_refused(SEVERAL, "schedule={name: median, rungs: [1, 2]}", "schedule.name: 'median' ranks");
  assert_refused("objective=[{metric: accuracy}, {metric: accuracy, goal: min}]", NULL,
                 "objective[1].metric: 'accuracy' is there twice");
  assert_refused("objective=[{metric: accuracy}, {metric: loss, goal: least}]", NULL,
                 "objective[1].goal: 'least' is neither min nor max");
  assert_refused("objective=[{metric: accuracy}, {metric: auc}]", NULL,
                 "objective[1].metric: 'auc' is not known");
  assert_refused(SEVERAL, "from=[search-012345]", "from: a sweep of several objectives learns");
  assert_refused(SEVERAL, "objectives=[{metric: loss}]", "objectives is given twice");
}

static void a_list_of_one_objective_is_that_objective(void **state) {
  static const char *const setting = "objective=[{metric: loss}]";
  struct sweep *sweep = sweep_of(sweep_asha_text, &setting, 1);
  (void)state;
  assert_int_equal(sweep->n_objectives, 1);
  assert_string_equal(sweep->spec->objective->metric, "loss");
  assert_string_equal(sweep->spec->objective->goal, "min");
  sweep_free(sweep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fronts_are_those_that_peeling_finds),
      cmocka_unit_test(ten_thousand_points_are_ranked_without_comparing_all_pairs),
      cmocka_unit_test(a_sweeps_front_goes_along_with_results_and_failures),
      cmocka_unit_test(a_front_of_ten_thousand_trials_is_there_without_comparing_any_of_them_again),
      cmocka_unit_test(the_ends_of_a_front_come_first_and_its_crowded_points_last),
      cmocka_unit_test(a_sweep_has_the_front_of_its_trials_and_the_same_log_in_any_order),
      cmocka_unit_test(tpe_comes_closer_to_the_set_than_random_does),
      cmocka_unit_test(what_ranks_by_one_objective_is_refused_by_name),
      cmocka_unit_test(a_list_of_one_objective_is_that_objective),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What single searchers promise: an order, what they refuse, and that they learn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"
#include "common/sweep/searcher.h"
#include "tests/support/common/sweep_fixture.h"

enum { N = SPACE_DIMENSIONS_MAX };

static const char *const MODELS[] = {"tpe", "bohb", "gp", "cmaes"};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

/* The values of a point as a line. */
static void point_write(const struct space *space, const double *point, char *out) {
  *out = '\0';
  for (int i = 0; i < space->n; i++) {
    char text[SPACE_NUMBER_SIZE];
    sprintf(out + strlen(out), "%s%s", i ? " " : "",
            isnan(point[i]) ? "-" : space_text(&space->dimensions[i], point[i], text));
  }
}

static void grid_goes_through_what_is_active_the_last_dimension_fastest(void **state) {
  static const char *const expected[] = {"0.1 - x", "0.1 1 y", "0.1 2 y", "0.1 3 y",
                                         "0.2 - x", "0.2 1 y", "0.2 2 y", "0.2 3 y"};
  struct trials trials;
  double point[N];
  char line[256];
  struct err err = ERR_NONE;
  struct search search;
  (void)state;
  trials_init(&trials, "lr uniform 0.1 0.2 step 0.1; n choice 1 2 3 when k y; k choice x y", "grid", 0);
  for (int i = 0; i < 8; i++) {
    trials_suggest(&trials, point);
    point_write(trials.space, point, line);
    assert_string_equal(line, expected[i]);
    trials_add(&trials, point, i % 3 ? SWEEP_DONE : SWEEP_FAILED, 10, i);
  }
  search = (struct search){trials.space, trials.options, 8, trials.observations, 8, 0};
  assert_int_equal(search_suggest(&search, point, &err), ERR_NOT_FOUND);
  trials_fini(&trials);
}

static void grid_leaves_out_points_that_were_given(void **state) {
  struct trials trials;
  double point[N];
  (void)state;
  trials_init(&trials, "a choice p q r", "grid", 0);
  trials_add(&trials, (double[]){1}, SWEEP_PENDING, 0, NAN);
  trials_add(&trials, (double[]){1}, SWEEP_DONE, 10, 3);
  trials_suggest(&trials, point);
  assert_true(point[0] == 0);
  trials_add(&trials, point, SWEEP_DONE, 10, 3);
  trials_suggest(&trials, point);
  assert_true(point[0] == 2);
  trials_fini(&trials);
}

static void assert_refused(const char *name, const char *line, const char *text) {
  struct space *space = sweep_space_make(line);
  Weir__SweepSearch options;
  struct err err = ERR_NONE;
  weir__sweep_search__init(&options);
  options.name = (char *)name;
  assert_int_equal(searcher_settle(&options, space, &err), ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' has no '%s'", err.text, text);
  space_free(space);
}

static void spaces_that_a_searcher_cannot_search_are_refused_by_the_dimensions_name(void **state) {
  (void)state;
  assert_refused("grid", "a choice 1 2; b uniform 0 1", "space.b: step: the searcher 'grid' needs one");
  assert_refused("grid", "a log 1 2", "space.a: step: the searcher 'grid' needs one");
  assert_refused("cmaes", "b uniform 0 1; a choice 1 2", "space.a: choice: the searcher 'cmaes'");
  assert_refused("cmaes", "a files 1 2", "space.a: files: the searcher 'cmaes'");
  assert_refused("rendom", "a choice 1 2",
                 "search.name: unknown searcher 'rendom'; known: random, grid, sobol");
}

static void assert_option_refused(const char *name, void (*set)(Weir__SweepSearch *), const char *text) {
  struct space *space = sweep_space_make("x uniform 0 1");
  Weir__SweepSearch options;
  struct err err = ERR_NONE;
  weir__sweep_search__init(&options);
  options.name = (char *)name;
  set(&options);
  assert_int_equal(searcher_settle(&options, space, &err), ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' has no '%s'", err.text, text);
  space_free(space);
}

static void set_gamma(Weir__SweepSearch *options) {
  options->has_gamma = true;
  options->gamma = 1.5;
}

static void set_candidates(Weir__SweepSearch *options) {
  options->has_n_ei_candidates = true;
  options->n_ei_candidates = 1000000;
}

static void set_popsize(Weir__SweepSearch *options) {
  options->has_popsize = true;
  options->popsize = 3;
}

static void set_percent(Weir__SweepSearch *options) {
  options->has_top_n_percent = true;
  options->top_n_percent = 100;
}

static void options_out_of_range_and_of_other_searchers_are_refused(void **state) {
  (void)state;
  assert_option_refused("random", set_gamma, "search.gamma: is not an option of 'random'");
  assert_option_refused("tpe", set_gamma, "search.gamma: must be above 0 and below 1");
  assert_option_refused("tpe", set_candidates, "search.n_ei_candidates: must be at most 10000");
  assert_option_refused("cmaes", set_popsize, "search.popsize: must be at least 4");
  assert_option_refused("bohb", set_percent, "search.top_n_percent: must be below 100");
}

static int double_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double bowl(const double *point, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++)
    sum += (point[i] - 0.3) * (point[i] - 0.3);
  return sum;
}

/* The median over seeds of the least value of n trials, `beside` of which run at a time. */
static double bowl_search(const char *name, int n, int beside) {
  enum { SEEDS = 9 };
  double best[SEEDS], point[N];
  for (int seed = 0; seed < SEEDS; seed++) {
    struct trials trials;
    best[seed] = INFINITY;
    trials_init(&trials, "a uniform 0 1; b uniform 0 1; c uniform 0 1; d uniform 0 1", name, (uint64_t)seed);
    for (int i = 0; i < n; i++) {
      trials_suggest(&trials, point);
      trials_add(&trials, point, SWEEP_PENDING, 0, NAN);
      best[seed] = fmin(best[seed], bowl(point, 4));
      if (trials.n >= beside) {
        int done = trials.n - beside;
        trials.observations[done].state = SWEEP_DONE;
        trials_add_result(&trials, done, 10, bowl(trials.observations[done].point, 4));
      }
    }
    trials_fini(&trials);
  }
  qsort(best, SEEDS, sizeof *best, double_compare);
  return best[SEEDS / 2];
}

static void models_find_a_better_point_than_chance(void **state) {
  static const double share[2][MODEL_COUNT] = {{0.4, 0.8, 0.001, 0.4}, {0.4, 0.8, 0.1, 0.4}};
  double chance = bowl_search("random", 60, 1);
  (void)state;
  for (int m = 0; m < MODEL_COUNT; m++)
    for (int beside = 1; beside <= 4; beside += 3) {
      double found = bowl_search(MODELS[m], 60, beside);
      if (!(found < share[beside > 1][m] * chance))
        fail_msg("%s, %d at a time: %g, by chance %g", MODELS[m], beside, found, chance);
    }
}

/* Of the last 20 of 60 trials, how many have point[0] above a place. */
static int count_late(const char *name, const char *line, double place,
                      void (*add)(struct trials *, const double *)) {
  int n = 0;
  for (uint64_t seed = 0; seed < 3; seed++) {
    struct trials trials;
    double point[N];
    trials_init(&trials, line, name, seed);
    for (int i = 0; i < 60; i++) {
      trials_suggest(&trials, point);
      n += i >= 40 && point[0] > place;
      add(&trials, point);
    }
    trials_fini(&trials);
  }
  return n;
}

static void add_failing_above_half(struct trials *trials, const double *point) {
  bool is_failed = point[0] > 0.5;
  trials_add(trials, point, is_failed ? SWEEP_FAILED : SWEEP_DONE, 10, is_failed ? NAN : bowl(point, 2));
}

static void models_keep_away_from_where_trials_fail(void **state) {
  (void)state;
  for (int m = 0; m < MODEL_COUNT; m++) {
    int n = count_late(MODELS[m], "a uniform 0 1; b uniform 0 1", 0.5, add_failing_above_half);
    if (n > 20) /* of 60, of which a third of bohb's are random */
      fail_msg("%s: %d of 60 trials", MODELS[m], n);
  }
}

/* The second choice is better, and has a number of its own, best at 0.3. */
static void add_branches(struct trials *trials, const double *point) {
  double value = point[0] == 0 ? 1 : fabs(point[1] - 0.3);
  trials_add(trials, point, SWEEP_DONE, 10, value);
}

static void models_prefer_the_better_branch_of_a_condition(void **state) {
  static const char *const names[] = {"tpe", "bohb", "gp"};
  (void)state;
  for (int m = 0; m < 3; m++) {
    int n = count_late(names[m], "k choice x y; m uniform 0 1 when k y", 0.5, add_branches);
    if (n < 40)
      fail_msg("%s: %d of 60 trials", names[m], n);
  }
}

/* At step 10 large a looks good; at step 90, which one of three trials gets, small a is. */
static void add_rungs(struct trials *trials, const double *point) {
  trials_add(trials, point, SWEEP_DONE, 10, -point[0]);
  if (trials->n % 3 == 0)
    trials_add_result(trials, trials->n - 1, 90, point[0]);
}

static void models_believe_the_highest_rung(void **state) {
  (void)state;
  for (int m = 0; m < 3; m++) {
    int n = count_late(MODELS[m], "a uniform 0 1; b uniform 0 1", 0.5, add_rungs);
    if (n > 25)
      fail_msg("%s: %d of 60 trials", MODELS[m], n);
  }
}

/* Of results at the first of three rungs, which the scheduler chooses by. */
static void suggest_after(const char *name, double sign, int n_further, double point[2]) {
  struct err err = ERR_NONE;
  struct trials trials;
  struct search search;
  trials_init(&trials, "a uniform 0 1; b uniform 0 1", name, 3);
  for (int i = 0; i < 40; i++) {
    double at[2] = {(i % 8) / 8.0, (i / 8) / 8.0};
    trials_add(&trials, at, SWEEP_DONE, 10, sign * at[0]);
    if (i % 3 == 0 && i / 3 < n_further)
      trials_add_result(&trials, i, 30, sign * at[1]);
  }
  search = (struct search){trials.space, trials.options, 40, trials.observations, 40, 10};
  assert_int_equal(search_suggest(&search, point, &err), 0);
  trials_fini(&trials);
}

static void tpe_and_cmaes_learn_nothing_from_the_first_of_several_rungs(void **state) {
  static const char *const names[] = {"tpe", "cmaes"};
  double up[2], down[2];
  (void)state;
  for (int m = 0; m < 2; m++) {
    suggest_after(names[m], 1, 3, up);
    suggest_after(names[m], -1, 3, down);
    assert_true(up[0] == down[0] && up[1] == down[1]);
    suggest_after(names[m], 1, 13, up);
    suggest_after(names[m], -1, 13, down);
    assert_false(up[0] == down[0] && up[1] == down[1]);
  }
}

static void tpe_learns_what_goes_together_if_it_is_multivariate(void **state) {
  double best[2] = {0};
  (void)state;
  for (int is_joint = 0; is_joint < 2; is_joint++)
    for (uint64_t seed = 0; seed < 9; seed++) {
      struct trials trials;
      double point[N], least = INFINITY;
      trials_init(&trials, "a uniform 0 1; b uniform 0 1; c uniform 0 1", "tpe", seed);
      trials.options->multivariate = is_joint;
      for (int i = 0; i < 80; i++) {
        double value;
        trials_suggest(&trials, point); /* a valley along the diagonal */
        value = 100 * (fabs(point[0] - point[1]) + fabs(point[1] - point[2])) + fabs(point[0] - 0.7);
        least = fmin(least, value);
        trials_add(&trials, point, SWEEP_DONE, 10, value);
      }
      best[is_joint] += least / 9;
      trials_fini(&trials);
    }
  if (!(best[1] < best[0]))
    fail_msg("%g, each dimension by itself %g", best[1], best[0]);
}

/* Where it begins again is drawn: so some points lie near the ends of the range, where the first ones never
 * do. */
static void cmaes_begins_again_elsewhere_when_it_has_shrunk_to_a_point(void **state) {
  int n_far = 0, n_outer = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 3; seed++) {
    struct trials trials;
    double point[N];
    trials_init(&trials, "a uniform 0 1; b uniform 0 1", "cmaes", seed);
    for (int i = 0; i < 600; i++) {
      trials_suggest(&trials, point);
      n_far += i > 200 && bowl(point, 2) > 0.01;
      n_outer += i > 200 && (fabs(point[0] - 0.5) > 0.47 || fabs(point[1] - 0.5) > 0.47);
      trials_add(&trials, point, SWEEP_DONE, 10, bowl(point, 2));
    }
    trials_fini(&trials);
  }
  assert_true(n_far > 60);
  assert_true(n_outer > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grid_goes_through_what_is_active_the_last_dimension_fastest),
      cmocka_unit_test(grid_leaves_out_points_that_were_given),
      cmocka_unit_test(spaces_that_a_searcher_cannot_search_are_refused_by_the_dimensions_name),
      cmocka_unit_test(options_out_of_range_and_of_other_searchers_are_refused),
      cmocka_unit_test(models_find_a_better_point_than_chance),
      cmocka_unit_test(models_keep_away_from_where_trials_fail),
      cmocka_unit_test(models_prefer_the_better_branch_of_a_condition),
      cmocka_unit_test(models_believe_the_highest_rung),
      cmocka_unit_test(tpe_and_cmaes_learn_nothing_from_the_first_of_several_rungs),
      cmocka_unit_test(tpe_learns_what_goes_together_if_it_is_multivariate),
      cmocka_unit_test(cmaes_begins_again_elsewhere_when_it_has_shrunk_to_a_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

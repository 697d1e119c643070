/* What every searcher must do, for each row of searcher.def, in spaces of several shapes and with histories
   of several kinds. `searcher_test NAME` tries one row. */
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
#include "common/base/message.h"
#include "common/sweep/searcher.h"
#include "tests/support/common/sweep_fixture.h"

enum { N = SPACE_DIMENSIONS_MAX, TRIALS = 40 };

static const char *only;

/* Spaces; not every searcher takes each. */
static const char *const SPACES[] = {
    "x uniform 0 1",
    "x log 0.0001 0.3; y uniform -5 5",
    "x uniform 0 1 step 0.25; y log 1 64 step 1; z uniform 0 1000 step 1",
    "a choice p q r; b choice 1 2",
    "a choice only",
    "x uniform 0 1; a choice p q r; f files small.onnx wide.onnx; s uniform 0 4 step 1",
    "m uniform 0.8 0.99 when name sgd; name choice sgd adam; n choice 0 1 when name sgd; d uniform 0 1 when "
    "n 1; "
    "b log 0.1 0.9 when name adam",
    "s choice 1 2 3; t choice 1 2 when s 2; u uniform 0 1 step 0.5 when t 1",
    "x0 uniform 0 1; x1 uniform 0 1; x2 uniform 0 1; x3 uniform 0 1; x4 log 1 9; x5 log 1 9; x6 uniform 0 1; "
    "x7 uniform 0 1; x8 uniform 0 1; x9 uniform 0 1",
};
enum { SPACE_COUNT = sizeof SPACES / sizeof *SPACES, WIDE = SPACE_COUNT - 1 };

enum history { EMPTY, DONE, PENDING, FAILED, MIXED, RUNGS, EQUAL, HUGE_VALUES, HISTORIES };

static bool takes(const char *searcher, const char *line) {
  struct space *space = sweep_space_make(line);
  Weir__SweepSearch *options = mem_new(sizeof *options);
  struct err err = ERR_NONE;
  bool is_taken;
  weir__sweep_search__init(options);
  options->name = mem_strdup(searcher);
  is_taken = searcher_settle(options, space, &err) == 0;
  if (!is_taken && strncmp(err.text, "space.", 6) != 0)
    fail_msg("%s refuses %s without a dimension's name: %s", searcher, line, err.text);
  message_free(options);
  space_free(space);
  return is_taken;
}

/* A drawn point of the space. */
static void point_draw(const struct space *space, uint64_t key, double *point) {
  for (int i = 0; i < space->n; i++) {
    double u = (double)(random_bits(key, (uint64_t)i) >> 11) * 0x1p-53;
    point[i] = space->dimensions[i].kind == DIMENSION_CHOICE ? floor(u * space->dimensions[i].n_values) : u;
  }
  space_activate(space, point);
}

static double bowl(const struct space *space, const double *point) {
  double sum = 0;
  for (int i = 0; i < space->n; i++)
    sum += isnan(point[i])                                 ? 0.1
           : space->dimensions[i].kind == DIMENSION_CHOICE ? point[i] != 0
                                                           : (point[i] - 0.3) * (point[i] - 0.3);
  return sum;
}

static void trial_draw(struct trials *trials, enum history history, uint64_t key) {
  double point[N], value;
  uint64_t kind = random_bits(key, 100) % 4;
  int trial = trials->n;
  point_draw(trials->space, key, point);
  value = bowl(trials->space, point);
  if (history == PENDING || (history == MIXED && kind == 0))
    trials_add(trials, point, SWEEP_PENDING, 0, NAN);
  else if (history == FAILED || (history == MIXED && kind == 1))
    trials_add(trials, point, SWEEP_FAILED, 10, kind % 2 ? NAN : value);
  else if (history == RUNGS) {
    trials_add(trials, point,
               kind == 3   ? SWEEP_PENDING
               : kind == 2 ? SWEEP_FAILED
                           : SWEEP_DONE,
               10, value + 1);
    for (uint64_t rung = 1; rung <= kind && kind < 3; rung++)
      trials_add_result(trials, trial, 10 + 20 * rung, value);
  } else if (history == HUGE_VALUES)
    trials_add(trials, point, SWEEP_DONE, 10, (kind % 2 ? -1 : 1) * pow(10, fmin(300 * value, 300)));
  else
    trials_add(trials, point, SWEEP_DONE, 10, history == EQUAL ? 1 : value);
}

static void trials_draw(struct trials *trials, enum history history, int n) {
  for (int i = 0; history != EMPTY && i < n; i++)
    trial_draw(trials, history, random_key(trials->options->seed, (uint64_t)i, history, 9));
}

static bool is_same(const double *a, const double *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i])))
      return false;
  return true;
}

/* Every searcher, and every space that it takes. */
static void for_each(void (*body)(const char *searcher, const char *line)) {
  const struct searcher_def *searcher;
  for (int row = 0; (searcher = searcher_at(row)); row++)
    for (int s = 0; s < SPACE_COUNT && (!only || strcmp(only, searcher->name) == 0); s++)
      if (takes(searcher->name, SPACES[s]))
        body(searcher->name, SPACES[s]);
}

static void suggest_both_ways(const char *searcher, const char *line) {
  for (enum history history = EMPTY; history < HISTORIES; history++)
    for (int n = 1; n <= TRIALS; n += 13) {
      struct trials trials;
      double point[N], again[N];
      struct err err = ERR_NONE;
      struct search search;
      trials_init(&trials, line, searcher, 3);
      trials_draw(&trials, history, n);
      search =
          (struct search){trials.space, trials.options, (uint32_t)trials.n, trials.observations, trials.n, 0};
      if (search_suggest(&search, point, &err) == ERR_NOT_FOUND) { /* of few points all may be taken */
        assert_string_equal(searcher, "grid");
        trials_fini(&trials);
        continue;
      }
      if (err.code || !space_holds(trials.space, point))
        fail_msg("%s in %s, history %d of %d: %s", searcher, line, history, n, err.text);
      trials_suggest(&trials, again);
      if (!is_same(point, again, trials.space->n))
        fail_msg("%s in %s, history %d of %d: asked twice, it suggests another point", searcher, line,
                 history, n);
      trials_fini(&trials);
    }
}

static void a_suggestion_lies_in_the_space_and_is_the_same_again(void **state) {
  (void)state;
  for_each(suggest_both_ways);
}

/* The history is all that there is to know: one that is made anew in other memory says the same. */
static void suggest_after_a_restart(const char *searcher, const char *line) {
  struct trials once, again;
  double a[N], b[N];
  trials_init(&once, line, searcher, 5);
  trials_init(&again, line, searcher, 5);
  for (int i = 0; i < TRIALS; i++) {
    struct search search = {once.space, once.options, (uint32_t)i, once.observations, i, 0};
    struct err err = ERR_NONE;
    if (search_suggest(&search, a, &err) == ERR_NOT_FOUND)
      break;
    trials_add(&once, a, SWEEP_DONE, 10, bowl(once.space, a));
  }
  trials_draw(&again, MIXED, 7); /* what another sweep does between leaves nothing behind */
  for (int i = 0; i < 7; i++) {
    free((void *)again.observations[i].point);
    free((void *)again.observations[i].results);
  }
  again.n = 0;
  for (int i = 0; i < once.n; i++) {
    trials_suggest(&again, b);
    trials_add(&again, b, SWEEP_DONE, 10, bowl(again.space, b));
    if (!is_same(once.observations[i].point, again.observations[i].point, once.space->n))
      fail_msg("%s in %s: trial %d differs", searcher, line, i);
  }
  trials_fini(&once);
  trials_fini(&again);
}

static void a_sweep_again_suggests_the_same_trials(void **state) {
  (void)state;
  for_each(suggest_after_a_restart);
}

/* Grid has no seed to go by. */
static void suggest_with_other_seeds(const char *searcher, const char *line) {
  struct trials a, b;
  double x[N], y[N];
  int n_same = 0;
  if (strcmp(searcher, "grid") == 0 || strcmp(line, "a choice only") == 0)
    return;
  trials_init(&a, line, searcher, 1);
  trials_init(&b, line, searcher, 2);
  for (int i = 0; i < 30; i++) {
    trials_suggest(&a, x);
    trials_suggest(&b, y);
    n_same += is_same(x, y, a.space->n);
    trials_add(&a, x, SWEEP_DONE, 10, bowl(a.space, x));
    trials_add(&b, x, SWEEP_DONE, 10, bowl(a.space, x));
  }
  if (n_same == 30)
    fail_msg("%s in %s: the seed changes nothing", searcher, line);
  trials_fini(&a);
  trials_fini(&b);
}

static void another_seed_suggests_other_points(void **state) {
  (void)state;
  for_each(suggest_with_other_seeds);
}

/* Trials that are asked for while others run are not all the same one. */
static void suggest_while_others_run(const char *searcher, const char *line) {
  struct trials trials;
  double first[N], next[N];
  int n_same = 0;
  trials_init(&trials, line, searcher, 4);
  if (trials.space->n == 1 || trials.space->dimensions[0].n_values || trials.space->dimensions[1].n_values) {
    trials_fini(&trials);
    return;
  }
  for (int i = 0; i < 20; i++) {
    trials_suggest(&trials, first);
    trials_add(&trials, first, SWEEP_DONE, 10, bowl(trials.space, first));
  }
  trials_suggest(&trials, first);
  for (int i = 0; i < 8; i++) {
    trials_suggest(&trials, next);
    trials_add(&trials, next, SWEEP_PENDING, 0, NAN);
    n_same += i > 0 && is_same(first, next, trials.space->n);
  }
  if (n_same)
    fail_msg("%s in %s: suggests a running trial's point again", searcher, line);
  trials_fini(&trials);
}

static void trials_beside_each_other_differ(void **state) {
  (void)state;
  for_each(suggest_while_others_run);
}

static void histories_of_500_trials_are_taken(void **state) {
  const struct searcher_def *searcher;
  (void)state;
  for (int row = 0; (searcher = searcher_at(row)); row++)
    for (enum history history = DONE; history < HISTORIES; history++) {
      struct trials trials;
      double point[N];
      if ((only && strcmp(only, searcher->name) != 0) || !takes(searcher->name, SPACES[WIDE]))
        continue;
      trials_init(&trials, SPACES[WIDE], searcher->name, 1);
      trials_draw(&trials, history, 520);
      trials_suggest(&trials, point);
      trials_fini(&trials);
    }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_suggestion_lies_in_the_space_and_is_the_same_again),
      cmocka_unit_test(a_sweep_again_suggests_the_same_trials),
      cmocka_unit_test(another_seed_suggests_other_points),
      cmocka_unit_test(trials_beside_each_other_differ),
      cmocka_unit_test(histories_of_500_trials_are_taken),
  };
  only = argc > 1 ? argv[1] : NULL;
  return cmocka_run_group_tests(tests, NULL, NULL);
}

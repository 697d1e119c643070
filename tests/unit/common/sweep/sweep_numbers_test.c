/* What searchers compute with: Sobol's points, distributions, matrices, minima, densities, processes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/sweep/cube.h"
#include "common/sweep/draw.h"
#include "common/sweep/gauss.h"
#include "common/sweep/history.h"
#include "common/sweep/improvement.h"
#include "common/sweep/numbers/matrix.h"
#include "common/sweep/numbers/minimize.h"
#include "common/sweep/parzen.h"
#include "tests/support/common/sweep_fixture.h"

static void assert_near(double value, double expected, double tolerance) {
  if (!(fabs(value - expected) <= tolerance * (1 + fabs(expected))))
    fail_msg("%.17g, expected %.17g", value, expected);
}

/* scipy's points are in the order of Gray's code (tests/parity/sobol.json, which sobol.py beside it makes).
 */
static void unscrambled_sobol_points_are_scipys(void **state) {
  json_t *root = json_load_file("tests/parity/sobol.json", 0, NULL), *row, *expected;
  size_t at, i;
  (void)state;
  assert_non_null(root);
  json_array_foreach(json_object_get(root, "points"), at, row) {
    uint32_t index = (uint32_t)json_integer_value(json_array_get(row, 0));
    double places[SPACE_DIMENSIONS_MAX];
    cube_sobol(index ^ index >> 1, 0, SPACE_DIMENSIONS_MAX, places);
    assert_int_equal(json_array_size(json_array_get(row, 1)), SPACE_DIMENSIONS_MAX);
    json_array_foreach(json_array_get(row, 1), i, expected) {
      if (places[i] != json_number_value(expected))
        fail_msg("point %u, dimension %zu: %.17g", index, i, places[i]);
    }
  }
  json_decref(root);
}

/* Of 64 points each 64th of each dimension has one, and of two dimensions each 8 x 8th. */
static void scrambled_sobol_points_keep_their_balance(void **state) {
  (void)state;
  for (uint64_t key = 1; key < 20; key++) {
    int plane[64] = {0};
    static int line[SPACE_DIMENSIONS_MAX][64];
    memset(line, 0, sizeof line);
    for (uint32_t i = 0; i < 64; i++) {
      double places[SPACE_DIMENSIONS_MAX];
      cube_sobol(i, key, SPACE_DIMENSIONS_MAX, places);
      for (int d = 0; d < SPACE_DIMENSIONS_MAX; d++)
        line[d][(int)(places[d] * 64)]++;
      plane[(int)(places[0] * 8) * 8 + (int)(places[1] * 8)]++;
    }
    for (int cell = 0; cell < 64; cell++) {
      assert_int_equal(plane[cell], 1);
      for (int d = 0; d < SPACE_DIMENSIONS_MAX; d++)
        assert_int_equal(line[d][cell], 1);
    }
  }
}

static void quantiles_of_the_normal_distribution_invert_it(void **state) {
  (void)state;
  assert_near(normal_quantile(0.975), 1.959963984540054, 1e-15);
  assert_near(normal_quantile(1e-10), -6.361340902404056, 1e-15);
  assert_near(normal_quantile(0.5), 0, 1e-300);
  for (double x = -30; x < 5; x += 0.0625)
    assert_near(normal_quantile(normal_cdf(x)), x, x > 2 ? 1e-9 : 1e-13);
}

static void draws_have_their_distributions(void **state) {
  static const double range[2] = {0, 1};
  struct draw draw = draw_begin(1, 2, 3), other = draw_begin(1, 2, 4);
  double weights[3] = {1, 0, 3}, sum = 0, squares = 0, truncated = 0;
  int counts[3] = {0}, below[5] = {0};
  const int n = 100000;
  (void)state;
  assert_true(draw_uniform(&draw) != draw_uniform(&other));
  for (int i = 0; i < n; i++) {
    double x = draw_normal(&draw), t = draw_truncated(&draw, 0.25, 0.5, range);
    sum += x;
    squares += x * x;
    truncated += t;
    assert_true(t >= 0 && t <= 1);
    counts[draw_weighted(&draw, weights, 3)]++;
    below[draw_below(&draw, 5)]++;
  }
  assert_true(fabs(sum / n) < 0.02 && fabs(squares / n - 1) < 0.02);
  assert_near(truncated / n, 0.4281, 0.003); /* 0.25 + 0.5 (phi(-0.5) - phi(1.5)) / (Phi(1.5) - Phi(-0.5)) */
  assert_true(counts[1] == 0 && abs(counts[0] - n / 4) < 1000);
  for (int i = 0; i < 5; i++)
    assert_true(abs(below[i] - n / 5) < 1000);
}

enum { SIDE = 21 };

static void matrix_draw(double *a) { /* symmetric, positive definite */
  struct draw draw = draw_begin(7, 7, 7);
  double b[SIDE * SIDE];
  for (int i = 0; i < SIDE * SIDE; i++)
    b[i] = draw_normal(&draw);
  for (int i = 0; i < SIDE; i++)
    for (int j = 0; j < SIDE; j++)
      a[i * SIDE + j] = vector_dot(b + i * SIDE, b + j * SIDE, SIDE) + (i == j);
}

static void a_cholesky_factor_solves_and_inverts(void **state) {
  double a[SIDE * SIDE], l[SIDE * SIDE], inverse[SIDE * SIDE], x[SIDE];
  (void)state;
  matrix_draw(a);
  memcpy(l, a, sizeof a);
  assert_true(matrix_cholesky(l, SIDE));
  for (int i = 0; i < SIDE; i++)
    x[i] = i;
  matrix_solve_lower(l, SIDE, x);
  matrix_solve_upper(l, SIDE, x);
  matrix_inverse(l, SIDE, inverse);
  for (int i = 0; i < SIDE; i++) {
    double product = 0, solved = 0;
    for (int j = 0; j < SIDE; j++) {
      solved += inverse[i > j ? i * SIDE + j : j * SIDE + i] * j;
      product += a[i * SIDE + j] * x[j];
    }
    assert_near(product, i, 1e-11);
    assert_near(solved, x[i], 1e-10);
  }
  a[0] = -1;
  assert_false(matrix_cholesky(a, SIDE));
}

static void eigenvectors_make_the_matrix_again(void **state) {
  double a[SIDE * SIDE], used[SIDE * SIDE], values[SIDE], vectors[SIDE * SIDE];
  (void)state;
  matrix_draw(a);
  memcpy(used, a, sizeof a);
  matrix_eigen(used, SIDE, values, vectors);
  for (int i = 0; i < SIDE; i++)
    for (int j = 0; j < SIDE; j++) {
      double again = 0, unit = 0;
      for (int k = 0; k < SIDE; k++) {
        again += vectors[i * SIDE + k] * values[k] * vectors[j * SIDE + k];
        unit += vectors[k * SIDE + i] * vectors[k * SIDE + j];
      }
      assert_near(again, a[i * SIDE + j], 1e-11);
      assert_near(unit, i == j, 1e-12);
    }
}

static double rosenbrock(void *context, const double *x, double *gradient) {
  double a = 1 - x[0], b = x[1] - x[0] * x[0];
  *(int *)context += 1;
  gradient[0] = -2 * a - 400 * x[0] * b;
  gradient[1] = 200 * b;
  return a * a + 100 * b * b;
}

static void minima_are_found_within_bounds_and_on_them(void **state) {
  const double low[2] = {-2, -2}, high[2] = {2, 2}, lower[2] = {0.5, 2};
  int calls = 0;
  struct minimization minimization = {2, low, high, rosenbrock, &calls, 200, 1e-14};
  double x[2] = {-1.2, 1};
  (void)state;
  assert_true(minimize(&minimization, x) < 1e-10);
  assert_near(x[0], 1, 1e-4);
  assert_true(calls <= 200);
  minimization.high = lower; /* of x <= 0.5 the least value is at 0.5, 0.25 */
  x[0] = -1.2, x[1] = 1;
  assert_near(minimize(&minimization, x), 0.25, 1e-6);
  assert_near(x[1], 0.25, 1e-4);
}

/* E[max(0, -(z + noise))] by a sum over many places. */
static double improvement_summed(double mean, double sigma) {
  double sum = 0, step = 1e-4;
  for (double x = mean - 12 * sigma; x < 0; x += step * sigma)
    sum += -(x + step * sigma / 2) * normal_density((x + step * sigma / 2 - mean) / sigma) * step;
  return log(sum);
}

static void the_logarithm_of_the_improvement_is_exact_far_out(void **state) {
  (void)state;
  for (double z = -4; z <= 6; z += 0.5)
    assert_near(improvement_below(0, z * 0.7, 0.49).log, improvement_summed(z * 0.7, 0.7), 1e-6);
  /* mpmath: log(npdf(z) + z * ncdf(z)) */
  assert_near(improvement_below(0, 9.999, 1).log, -55.5429281438959, 1e-9);
  assert_near(improvement_below(0, 10.001, 1).log, -55.5633169099639, 1e-9);
  assert_near(improvement_below(0, 50, 1).log, -1258.74418286846, 1e-9);
}

static void the_improvements_slopes_are_its_differences(void **state) {
  (void)state;
  for (double mean = -3; mean < 30; mean += 0.37) {
    const double variance = 0.8, e = 1e-6;
    struct improvement at = improvement_below(0.3, mean, variance);
    assert_near(
        at.by_mean,
        (improvement_below(0.3, mean + e, variance).log - improvement_below(0.3, mean - e, variance).log) /
            (2 * e),
        1e-5);
    assert_near(
        at.by_variance,
        (improvement_below(0.3, mean, variance + e).log - improvement_below(0.3, mean, variance - e).log) /
            (2 * e),
        1e-5);
  }
}

static void a_density_has_1_in_all(void **state) {
  struct space *space = sweep_space_make("x uniform 0 1; s uniform 0 4 step 1; c choice p q r");
  static const double at[3][3] = {{0.1, 0.1, 0}, {0.99, 0.9, 2}, {0.5, 0.5, NAN}};
  struct arena arena;
  struct parzen parzen;
  double total = 0;
  const int cells = 400;
  (void)state;
  arena_init(&arena);
  parzen_init(&parzen, space, 3, &arena);
  for (int d = 0; d < 3; d++) {
    struct parzen_axis *axis = parzen_add_axis(&parzen, d, &arena);
    for (int k = 0; k < 3; k++) {
      axis->at[k] = at[k][d];
      axis->sigma[k] = k == 2 ? 1 : 0.05 * (k + 1);
      parzen.weights[k] = k + 1;
    }
    axis->own = 0.8;
    axis->other = 0.1;
  }
  parzen_prepare(&parzen);
  for (int i = 0; i < cells; i++)
    for (int s = 0; s < 5; s++)
      for (int c = 0; c < 3; c++)
        total += exp(parzen_log_density(&parzen, (double[]){(i + 0.5) / cells, (s + 0.5) / 5, c})) / cells;
  assert_near(total, 1, 1e-4);
  total = 0; /* without the entries that are not active */
  for (int i = 0; i < cells; i++)
    total += exp(parzen_log_density(&parzen, (double[]){(i + 0.5) / cells, NAN, NAN})) / cells;
  assert_near(total, 1, 1e-4);
  arena_fini(&arena);
  space_free(space);
}

/* Trials: done at both rungs (two), stopped at the first (two), running, waiting, failed after the first. */
static void trials_of_rungs(struct trials *trials) {
  static const double point[1] = {0.5}, values[2] = {4, 2};
  trials_init(trials, "x uniform 0 1", "random", 0);
  for (int i = 0; i < 2; i++) {
    trials_add(trials, point, SWEEP_DONE, 10, 1);
    trials_add_result(trials, i, 30, values[i]);
  }
  trials_add(trials, point, SWEEP_DONE, 10, 3);
  trials_add(trials, point, SWEEP_DONE, 10, -5);
  trials_add(trials, point, SWEEP_PENDING, 10, 0);
  trials_add(trials, point, SWEEP_PENDING, 0, NAN);
  trials_add(trials, point, SWEEP_FAILED, 10, 0);
}

static struct search search_of(const struct trials *trials) {
  return (struct search){trials->space,        trials->options, (uint32_t)trials->n,
                         trials->observations, trials->n,       0};
}

static void trials_rank_by_how_far_they_came_then_by_value(void **state) {
  static const int expected[] = {1, 0, 3, 4, 2, 6};
  struct trials trials;
  struct search search;
  struct arena arena;
  struct history history;
  (void)state;
  trials_of_rungs(&trials);
  search = search_of(&trials);
  arena_init(&arena);
  history = history_rank(&search, &arena);
  assert_int_equal(history.n_ranked, 6);
  for (int i = 0; i < 6; i++)
    assert_int_equal(history.ranked[i], expected[i]);
  assert_int_equal(history.n_failed, 1);
  assert_int_equal(history.n_pending, 1);
  assert_int_equal(history.pending[0], 5);
  arena_fini(&arena);
  trials_fini(&trials);
}

static void a_rung_has_a_value_for_every_trial(void **state) {
  static const enum rung_kind kinds[] = {RUNG_OWN,     RUNG_OWN,     RUNG_STOPPED, RUNG_STOPPED,
                                         RUNG_PENDING, RUNG_PENDING, RUNG_FAILED};
  static const double values[] = {4, 2, 4, 4, 3, 3, 4};
  struct trials trials;
  struct search search;
  struct arena arena;
  struct rung rung;
  (void)state;
  trials_of_rungs(&trials);
  search = search_of(&trials);
  arena_init(&arena);
  rung = history_rung(&search, 2, &arena);
  assert_true(rung.steps == 30 && rung.n == 7 && rung.n_own == 2);
  for (int i = 0; i < 7; i++) {
    assert_int_equal(rung.entries[i].kind, kinds[i]);
    assert_near(rung.entries[i].value, values[i], 1e-15);
  }
  rung = history_rung(&search, 3, &arena); /* more than the higher rung has */
  assert_true(rung.steps == 10 && rung.n_own == 5);
  rung = history_rung(&search, 30, &arena); /* more than any has */
  assert_true(rung.steps == 10);
  arena_fini(&arena);
  trials_fini(&trials);
}

enum { POINTS = 30 };

/* A smooth function of the first two dimensions; the third one says nothing. */
static double hill(const double *point) {
  return sin(5 * point[0]) + point[1] * point[1];
}

static void process_make(struct gauss *gauss, struct space *space, double *values, struct arena *arena) {
  double mean = 0, variance = 0;
  *gauss = (struct gauss){.space = space, .n_points = POINTS, .values = values};
  gauss->places = arena_new(arena, POINTS * 3 * sizeof(double));
  for (uint32_t i = 0; i < POINTS; i++) {
    cube_sobol(i, 5, 3, gauss->places + 3 * i);
    values[i] = hill(gauss->places + 3 * i);
    mean += values[i] / POINTS;
  }
  for (int i = 0; i < POINTS; i++)
    variance += (values[i] - mean) * (values[i] - mean) / POINTS;
  for (int i = 0; i < POINTS; i++)
    values[i] = (values[i] - mean) / sqrt(variance);
  gauss_fit(gauss, true, arena);
  gauss_condition(gauss, arena);
}

static void a_process_goes_through_its_points_and_knows_what_matters(void **state) {
  struct space *space = sweep_space_make("x uniform 0 1; y uniform 0 1; z uniform 0 1");
  struct arena arena;
  struct gauss gauss;
  double values[POINTS], work[2 * POINTS];
  (void)state;
  arena_init(&arena);
  process_make(&gauss, space, values, &arena);
  assert_true(gauss.scales[0] > 5 * gauss.scales[2]);
  for (int i = 0; i < POINTS; i++) {
    struct gauss_guess guess = gauss_predict(&gauss, gauss.places + 3 * i, work);
    assert_near(guess.mean, values[i], 1e-3);
    assert_true(guess.variance < 1e-3);
  }
  arena_fini(&arena);
  space_free(space);
}

static void a_processs_slopes_are_its_differences(void **state) {
  struct space *space = sweep_space_make("x uniform 0 1; y uniform 0 1; z uniform 0 1");
  struct arena arena;
  struct gauss gauss;
  double values[POINTS], work[2 * POINTS], by_mean[3], by_variance[3], slopes[3];
  (void)state;
  arena_init(&arena);
  process_make(&gauss, space, values, &arena);
  for (int d = 0; d < 3; d++) {
    const double e = 1e-5;
    double place[3] = {0.37, 0.61, 0.23};
    double more, less;
    struct gauss_guess above, below, at;
    at = gauss_predict_slopes(&gauss, place, work, by_mean, by_variance);
    assert_near(at.mean, gauss_predict(&gauss, place, work).mean, 1e-12);
    assert_near(gauss_improvement(&gauss, -2, place, work, slopes),
                gauss_improvement(&gauss, -2, place, work, NULL), 1e-12);
    place[d] += e;
    more = gauss_improvement(&gauss, -2, place, work, NULL);
    above = gauss_predict(&gauss, place, work);
    place[d] -= 2 * e;
    below = gauss_predict(&gauss, place, work);
    less = gauss_improvement(&gauss, -2, place, work, NULL);
    assert_near(slopes[d], (more - less) / (2 * e), 1e-3);
    assert_near(by_mean[d], (above.mean - below.mean) / (2 * e), 1e-4);
    assert_near(by_variance[d], (above.variance - below.variance) / (2 * e), 1e-3);
  }
  arena_fini(&arena);
  space_free(space);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unscrambled_sobol_points_are_scipys),
      cmocka_unit_test(scrambled_sobol_points_keep_their_balance),
      cmocka_unit_test(quantiles_of_the_normal_distribution_invert_it),
      cmocka_unit_test(draws_have_their_distributions),
      cmocka_unit_test(a_cholesky_factor_solves_and_inverts),
      cmocka_unit_test(eigenvectors_make_the_matrix_again),
      cmocka_unit_test(minima_are_found_within_bounds_and_on_them),
      cmocka_unit_test(the_logarithm_of_the_improvement_is_exact_far_out),
      cmocka_unit_test(the_improvements_slopes_are_its_differences),
      cmocka_unit_test(a_density_has_1_in_all),
      cmocka_unit_test(trials_rank_by_how_far_they_came_then_by_value),
      cmocka_unit_test(a_rung_has_a_value_for_every_trial),
      cmocka_unit_test(a_process_goes_through_its_points_and_knows_what_matters),
      cmocka_unit_test(a_processs_slopes_are_its_differences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

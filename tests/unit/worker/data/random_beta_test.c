/* The beta distribution: its moments, and its distribution function where that has a closed form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/memory.h"
#include "worker/data/random_beta.h"

enum { DRAWS = 100000 };

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double *draw(double a, double b, uint64_t seed) {
  double *x = mem_new(DRAWS * sizeof *x);
  for (uint64_t i = 0; i < DRAWS; i++) {
    x[i] = random_beta(random_key(seed, i, 0, 0), a, b);
    assert_true(x[i] >= 0 && x[i] <= 1);
  }
  return x;
}

/* Five standard errors of the mean and of the second moment. */
static void mean_and_variance_are_those_of_the_distribution(void **state) {
  static const double shapes[][2] = {{0.2, 0.2}, {0.4, 0.4}, {1, 1},   {0.5, 2},
                                     {2, 2},     {8, 3},     {50, 50}, {0.01, 0.01}};
  (void)state;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    double a = shapes[s][0], b = shapes[s][1], sum = 0, squares = 0;
    double mean = a / (a + b), variance = a * b / ((a + b) * (a + b) * (a + b + 1));
    double *x = draw(a, b, s);
    for (int i = 0; i < DRAWS; i++) {
      sum += x[i];
      squares += (x[i] - mean) * (x[i] - mean);
    }
    assert_true(fabs(sum / DRAWS - mean) < 5 * sqrt(variance / DRAWS));
    assert_true(fabs(squares / DRAWS / variance - 1) < 0.02);
    free(x);
  }
}

static double arcsine(double x) {
  return 2 / M_PI * asin(sqrt(x));
}

static double uniform(double x) {
  return x;
}

static double parabola(double x) {
  return x * x * (3 - 2 * x);
}

/* Kolmogorov and Smirnov's distance: 1.95 / sqrt(n) is passed by chance once in 1000. */
static void the_distribution_function_is_the_closed_one(void **state) {
  static const struct {
    double shape;
    double (*function)(double x);
  } cases[] = {{0.5, arcsine}, {1, uniform}, {2, parabola}};
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double *x = draw(cases[c].shape, cases[c].shape, 17 + c), distance = 0;
    qsort(x, DRAWS, sizeof *x, compare_doubles);
    for (int i = 0; i < DRAWS; i++)
      distance = fmax(distance, fabs(cases[c].function(x[i]) - (i + 0.5) / DRAWS));
    assert_true(distance < 1.95 / sqrt(DRAWS));
    free(x);
  }
}

/* Near 0 it is 0 or 1, as often; far above, 1/2. */
static void extreme_shapes_give_numbers(void **state) {
  int ones = 0;
  (void)state;
  for (uint64_t i = 0; i < 1000; i++) {
    double x = random_beta(random_key(1, i, 0, 0), 1e-30, 1e-30);
    assert_true(x == 0 || x == 1);
    ones += x == 1;
    assert_true(fabs(random_beta(random_key(2, i, 0, 0), 1e37, 1e37) - 0.5) < 1e-6);
  }
  assert_in_range(ones, 400, 600);
}

static void a_key_always_gives_the_same_number(void **state) {
  (void)state;
  assert_true(random_beta(5, 0.2, 0.2) == random_beta(5, 0.2, 0.2));
  assert_true(random_beta(5, 0.2, 0.2) != random_beta(6, 0.2, 0.2));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mean_and_variance_are_those_of_the_distribution),
      cmocka_unit_test(the_distribution_function_is_the_closed_one),
      cmocka_unit_test(extreme_shapes_give_numbers),
      cmocka_unit_test(a_key_always_gives_the_same_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

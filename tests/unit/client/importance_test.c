/* Which dimensions matter: against functions whose variance is known, and against Optuna's fANOVA. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/sweeps/importance.h"
#include "common/sweep/draw.h"

enum { N = 300, D = 3 };

/* Of n samples in the cube. */
static void find(double (*function)(const double *x), const double absent[D], struct importance out[D]) {
  static double x[N * D], y[N];
  struct draw draw = draw_begin(7, 7, 7);
  for (int i = 0; i < N; i++) {
    for (int d = 0; d < D; d++)
      x[i * D + d] = draw_uniform(&draw) < absent[d] ? -1 : draw_uniform(&draw);
    y[i] = function(x + i * D);
  }
  importance_find(&(struct importance_data){N, D, x, y, absent}, out);
}

static double linear(const double *x) {
  return 3 * x[0] + x[1];
}

static double product(const double *x) {
  return (x[0] - 0.5) * (x[1] - 0.5);
}

static double only_there(const double *x) {
  return x[2] < 0 ? 0 : 1;
}

static double constant(const double *x) {
  (void)x;
  return 4;
}

static const double nowhere[D] = {0};

static void shares_are_those_of_the_variance(void **state) {
  struct importance out[D];
  (void)state;
  find(linear, nowhere, out);
  assert_true(fabs(out[0].share - 0.9) < 0.04);
  assert_true(fabs(out[1].share - 0.1) < 0.04);
  assert_true(out[2].share < 0.01);
}

static void what_two_do_together_is_of_neither(void **state) {
  struct importance out[D];
  (void)state;
  find(product, nowhere, out);
  assert_true(out[0].share + out[1].share + out[2].share < 0.3); /* 0, but for what the trees get wrong */
}

static void a_marginal_is_the_mean_over_the_other_dimensions(void **state) {
  struct importance out[D];
  (void)state;
  find(linear, nowhere, out);
  for (int b = 0; b < IMPORTANCE_BUCKETS; b++)
    assert_true(fabs(out[0].marginal[b] - (3 * (b + 0.5) / IMPORTANCE_BUCKETS + 0.5)) < 0.3);
}

static void whether_a_dimension_is_active_counts_as_its_own(void **state) {
  const double absent[D] = {0, 0, 0.5};
  struct importance out[D];
  (void)state;
  find(only_there, absent, out);
  assert_true(out[2].share > 0.95 && out[0].share < 0.01);
  assert_true(fabs(out[2].marginal[3] - 1) < 0.05);
}

static void alike_results_have_no_shares(void **state) {
  struct importance out[D];
  (void)state;
  find(constant, nowhere, out);
  for (int d = 0; d < D; d++)
    assert_true(out[d].share == 0 && fabs(out[d].marginal[0] - 4) < 1e-9);
}

/* Both grow random trees: they differ by chance. */
static void shares_are_within_five_hundredths_of_optunas(void **state) {
  json_t *root = json_load_file("tests/parity/importance.json", 0, NULL), *named;
  size_t index;
  (void)state;
  assert_non_null(root);
  json_array_foreach(json_object_get(root, "cases"), index, named) {
    json_t *points = json_object_get(named, "points"), *values = json_object_get(named, "values");
    int n = (int)json_array_size(points);
    double *x = calloc((size_t)n * D, sizeof *x), *y = calloc((size_t)n, sizeof *y);
    struct importance out[D];
    for (int i = 0; i < n; i++) {
      y[i] = json_number_value(json_array_get(values, (size_t)i));
      for (int d = 0; d < D; d++)
        x[i * D + d] = json_real_value(json_array_get(json_array_get(points, (size_t)i), (size_t)d));
    }
    importance_find(&(struct importance_data){n, D, x, y, nowhere}, out);
    for (int d = 0; d < D; d++) {
      double theirs = json_number_value(json_array_get(json_object_get(named, "importances"), (size_t)d));
      if (fabs(out[d].share - theirs) > 0.05)
        fail_msg("%s, dimension %d: %.4f, Optuna %.4f", json_string_value(json_object_get(named, "name")), d,
                 out[d].share, theirs);
    }
    free(x);
    free(y);
  }
  json_decref(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_are_those_of_the_variance),
      cmocka_unit_test(what_two_do_together_is_of_neither),
      cmocka_unit_test(a_marginal_is_the_mean_over_the_other_dimensions),
      cmocka_unit_test(whether_a_dimension_is_active_counts_as_its_own),
      cmocka_unit_test(alike_results_have_no_shares),
      cmocka_unit_test(shares_are_within_five_hundredths_of_optunas),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

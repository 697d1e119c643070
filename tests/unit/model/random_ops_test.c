/* Ops that draw: their numbers have the distribution that they promise, and follow from the counters alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/graph/op.h"

enum { DRAWS = 20000 };

/* One execution of an op with `n_in` elements of input (0: none) and DRAWS of output. */
struct drawing {
  const char *op;
  struct attr attrs[3];
  int n_attrs, index;
  struct shape in_shape, out_shape;
  enum dtype out_dtype;
  const float *in;
  struct op_context context;
};

static void draw(const struct drawing *drawing, void *out) {
  struct graph *graph = graph_new();
  struct tensor in = {DTYPE_F32, drawing->in_shape, (void *)drawing->in};
  struct tensor result = {drawing->out_dtype, drawing->out_shape, out};
  struct node node = {.op = op_find("", drawing->op),
                      .name = "n",
                      .index = drawing->index,
                      .attrs = drawing->attrs,
                      .n_attrs = drawing->n_attrs};
  struct op_call call = {
      .graph = graph, .node = &node, .in = &in, .out = &result, .context = drawing->context};
  struct err err = ERR_NONE;
  assert_int_equal(node.op->ref(&call, &err), ERR_OK);
  graph_free(graph);
}

static struct attr float_attr(const char *name, float value) {
  return (struct attr){.name = name, .type = ATTR_FLOAT, .f = value};
}

static struct drawing drawing_of(const char *op) {
  return (struct drawing){.op = op,
                          .index = 5,
                          .out_shape = {.rank = 1, .dim = {DRAWS}},
                          .out_dtype = DTYPE_F32,
                          .context = {.seed = 1, .step = 2, .microbatch = 3}};
}

static void expect_moments(const float *x, double mean, double deviation) {
  double sum = 0, squares = 0;
  for (int i = 0; i < DRAWS; i++)
    sum += x[i];
  for (int i = 0; i < DRAWS; i++)
    squares += (x[i] - sum / DRAWS) * (x[i] - sum / DRAWS);
  assert_true(fabs(sum / DRAWS - mean) < 0.02);
  assert_true(fabs(sqrt(squares / DRAWS) - deviation) < 0.02);
}

static void uniform_numbers_fill_their_range_evenly(void **state) {
  static float y[DRAWS];
  struct drawing drawing = drawing_of("RandomUniform");
  (void)state;
  drawing.attrs[drawing.n_attrs++] = float_attr("low", -1.0f);
  drawing.attrs[drawing.n_attrs++] = float_attr("high", 2.0f);
  draw(&drawing, y);
  expect_moments(y, 0.5, 3.0 / sqrt(12.0));
  for (int i = 0; i < DRAWS; i++)
    assert_true(y[i] >= -1.0f && y[i] < 2.0f);
}

static void normal_numbers_have_their_mean_deviation_and_tails(void **state) {
  static float y[DRAWS];
  struct drawing drawing = drawing_of("RandomNormal");
  int beyond = 0;
  (void)state;
  drawing.attrs[drawing.n_attrs++] = float_attr("mean", 3.0f);
  drawing.attrs[drawing.n_attrs++] = float_attr("scale", 0.5f);
  draw(&drawing, y);
  expect_moments(y, 3.0, 0.5);
  for (int i = 0; i < DRAWS; i++)
    beyond += fabsf(y[i] - 3.0f) > 1.0f;
  assert_true(fabs((double)beyond / DRAWS - 0.0455) < 0.005); /* two deviations */
}

static void bernoulli_draws_one_as_often_as_the_input_says(void **state) {
  static float p[DRAWS], y[DRAWS];
  struct drawing drawing = drawing_of("Bernoulli");
  (void)state;
  for (int i = 0; i < DRAWS; i++)
    p[i] = 0.3f;
  drawing.in = p;
  drawing.in_shape = drawing.out_shape;
  draw(&drawing, y);
  expect_moments(y, 0.3, sqrt(0.3 * 0.7));
}

static void multinomial_draws_classes_by_their_log_probabilities(void **state) {
  static const float logits[4] = {0.0f, 1.0f, -INFINITY, 2.0f};
  static int32_t drawn[DRAWS];
  struct drawing drawing = drawing_of("Multinomial");
  double total = 1.0 + exp(1.0) + exp(2.0);
  int count[4] = {0};
  (void)state;
  drawing.in = logits;
  drawing.in_shape = (struct shape){.rank = 2, .dim = {1, 4}};
  drawing.out_shape = (struct shape){.rank = 2, .dim = {1, DRAWS}};
  drawing.out_dtype = DTYPE_I32;
  draw(&drawing, drawn);
  for (int i = 0; i < DRAWS; i++)
    count[drawn[i]]++;
  for (int c = 0; c < 4; c++)
    assert_true(fabs((double)count[c] / DRAWS - exp(logits[c]) / total) < 0.02);
  assert_int_equal(count[2], 0);
}

static void numbers_change_with_every_counter_and_with_nothing_else(void **state) {
  static float first[DRAWS], other[DRAWS];
  struct drawing drawing = drawing_of("RandomNormal");
  (void)state;
  draw(&drawing, first);
  draw(&drawing, other);
  assert_memory_equal(first, other, sizeof first);
  for (int changed = 0; changed < 4; changed++) {
    struct drawing changes = drawing;
    changes.context.seed += changed == 0;
    changes.context.step += changed == 1;
    changes.context.microbatch += changed == 2;
    changes.index += changed == 3;
    draw(&changes, other);
    assert_int_not_equal(memcmp(first, other, sizeof first), 0);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(uniform_numbers_fill_their_range_evenly),
      cmocka_unit_test(normal_numbers_have_their_mean_deviation_and_tails),
      cmocka_unit_test(bernoulli_draws_one_as_often_as_the_input_says),
      cmocka_unit_test(multinomial_draws_classes_by_their_log_probabilities),
      cmocka_unit_test(numbers_change_with_every_counter_and_with_nothing_else),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

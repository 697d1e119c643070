/* What exporters decompose is fused, computes the same, and only then. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/fusions/fuse.h"
#include "model/graph/op.h"
#include "model/ops/shared/backward.h"
#include "tests/support/model/graph_run.h"

enum { BATCH = 2, TOKENS = 3, WIDTH = 4 };

static const struct shape hidden = {3, {BATCH, TOKENS, WIDTH}};

static struct graph *graph_start(void) {
  struct graph *graph = graph_new();
  graph->opset = 13;
  return graph;
}

static int add(struct graph *graph, const char *op, int a, int b) {
  return backward_binary(graph, op, a, b);
}

static int number(struct graph *graph, float value) {
  return graph_add_constant_f32(graph, value);
}

/* f32, of seeded random data; an initializer is a weight. */
static int tensor(struct graph *graph, enum value_kind kind, struct shape shape) {
  int64_t elems = shape_elems(&shape);
  float *data = arena_new(&graph->arena, (size_t)elems * sizeof *data);
  for (int64_t i = 0; i < elems; i++)
    data[i] = (float)(2 * random_uniform((uint64_t)graph->n_values, (uint64_t)i) - 1);
  return graph_add_value(graph, (struct value){.kind = kind,
                                               .dtype = DTYPE_F32,
                                               .shape = shape,
                                               .data = data,
                                               .producer = -1,
                                               .param = -1,
                                               .statistic = -1});
}

static int weight(struct graph *graph, int64_t elems) {
  return tensor(graph, VALUE_INITIALIZER, (struct shape){1, {elems}});
}

static void output(struct graph *graph, int value) {
  graph->outputs = arena_new(&graph->arena, sizeof *graph->outputs);
  graph->outputs[0] = value;
  graph->n_outputs = 1;
}

static void output_read(const struct graph *graph, float *copy) {
  struct arena arena = {0};
  struct err err = ERR_NONE;
  void **data = mem_new((size_t)graph->n_values * sizeof *data);
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  memcpy(copy, data[graph->outputs[0]],
         (size_t)shape_elems(&graph->values[graph->outputs[0]].shape) * sizeof *copy);
  free(data);
  arena_fini(&arena);
}

/* Fuses, frees the graph. The output's node must become `op` (NULL: stay as it is) and compute the same. */
static void fuse_and_compare(struct graph *graph, const char *op) {
  int64_t elems = shape_elems(&graph->values[graph->outputs[0]].shape);
  float *before = mem_new((size_t)elems * sizeof *before), *after = mem_new((size_t)elems * sizeof *after);
  struct node *last = graph->nodes[graph->values[graph->outputs[0]].producer];
  const char *was = last->op->name;
  output_read(graph, before);
  graph_fuse(graph);
  assert_string_equal(last->op->name, op ? op : was);
  output_read(graph, after);
  for (int64_t i = 0; i < elems; i++)
    assert_true(fabsf(before[i] - after[i]) <= 1e-6f + 1e-5f * fabsf(before[i]));
  free(before);
  free(after);
  graph_free(graph);
}

static int gelu(struct graph *graph, int x, float root) {
  int erf = backward_unary(graph, "Erf", add(graph, "Div", x, number(graph, root)));
  return add(graph, "Mul", add(graph, "Mul", x, add(graph, "Add", erf, number(graph, 1))),
             number(graph, 0.5f));
}

static void gelu_is_recognised_and_computes_the_same(void **state) {
  struct graph *graph = graph_start();
  (void)state;
  output(graph, gelu(graph, tensor(graph, VALUE_CONSTANT, hidden), 1.41421354f));
  fuse_and_compare(graph, "Gelu");
}

static void a_curve_like_gelu_is_left_alone(void **state) {
  struct graph *graph = graph_start();
  (void)state;
  output(graph, gelu(graph, tensor(graph, VALUE_CONSTANT, hidden), 1.5f));
  fuse_and_compare(graph, NULL);
}

static void gelu_by_tanh_is_recognised_in_the_forms_of_exporters(void **state) {
  (void)state;
  for (int uses_pow = 0; uses_pow < 2; uses_pow++) {
    struct graph *graph = graph_start();
    int x = tensor(graph, VALUE_CONSTANT, hidden), cube, inner;
    cube = uses_pow ? add(graph, "Pow", x, number(graph, 3)) : add(graph, "Mul", add(graph, "Mul", x, x), x);
    inner = add(graph, "Add", x, add(graph, "Mul", number(graph, 0.044715f), cube));
    inner = backward_unary(graph, "Tanh", add(graph, "Mul", inner, number(graph, 0.7978845608f)));
    inner = add(graph, "Add", number(graph, 1), inner);
    output(graph, add(graph, "Mul", add(graph, "Mul", number(graph, 0.5f), x), inner));
    fuse_and_compare(graph, "Gelu");
  }
}

/* x * gate(x), in either order; `op` is the gate's, of `of`. */
static int gated(struct graph *graph, const char *op, int x, int of, bool is_first) {
  struct attr attrs[] = {attr_of_float("alpha", 1 / 6.0f), attr_of_float("beta", 0.5f)};
  int gate =
      backward_node(graph, op, VALUES(of), (struct attr_list){attrs, strcmp(op, "HardSigmoid") == 0 ? 2 : 0});
  return is_first ? add(graph, "Mul", gate, x) : add(graph, "Mul", x, gate);
}

static void activations_by_a_gate_are_recognised(void **state) {
  (void)state;
  for (int first = 0; first < 2; first++) {
    struct graph *swish = graph_start(), *hard = graph_start(), *mish = graph_start();
    int x = tensor(swish, VALUE_CONSTANT, hidden);
    output(swish, gated(swish, "Sigmoid", x, x, first));
    fuse_and_compare(swish, "Swish");
    x = tensor(hard, VALUE_CONSTANT, hidden);
    output(hard, gated(hard, "HardSigmoid", x, x, first));
    fuse_and_compare(hard, "HardSwish");
    x = tensor(mish, VALUE_CONSTANT, hidden);
    output(mish, gated(mish, "Tanh", x, backward_unary(mish, "Softplus", x), first));
    fuse_and_compare(mish, "Mish");
  }
}

static void a_gate_of_something_else_is_left_alone(void **state) {
  struct graph *graph = graph_start();
  int x = tensor(graph, VALUE_CONSTANT, hidden), other = tensor(graph, VALUE_CONSTANT, hidden);
  (void)state;
  output(graph, gated(graph, "Sigmoid", x, other, false));
  fuse_and_compare(graph, NULL);
}

static int mean(struct graph *graph, int x) {
  int64_t axis = -1;
  struct attr attrs[] = {attr_of_ints("axes", &axis, 1), attr_of_int("keepdims", 1)};
  return backward_node(graph, "ReduceMean", VALUES(x), (struct attr_list){attrs, 2});
}

static int centered(struct graph *graph, int x) {
  return add(graph, "Sub", x, mean(graph, x));
}

static int layer_norm(struct graph *graph, int difference) {
  int square = add(graph, "Pow", difference, number(graph, 2));
  int variance = add(graph, "Add", mean(graph, square), number(graph, 1e-5f));
  int normal = add(graph, "Div", difference, backward_unary(graph, "Sqrt", variance));
  return add(graph, "Add", add(graph, "Mul", normal, weight(graph, WIDTH)), weight(graph, WIDTH));
}

static void layer_norm_is_recognised_and_computes_the_same(void **state) {
  struct graph *graph = graph_start();
  (void)state;
  output(graph, layer_norm(graph, centered(graph, tensor(graph, VALUE_CONSTANT, hidden))));
  fuse_and_compare(graph, "LayerNormalization");
}

static void a_difference_from_another_mean_is_no_layer_norm(void **state) {
  struct graph *graph = graph_start();
  int x = tensor(graph, VALUE_CONSTANT, hidden), other = tensor(graph, VALUE_CONSTANT, hidden);
  (void)state;
  output(graph, layer_norm(graph, add(graph, "Sub", x, mean(graph, other))));
  fuse_and_compare(graph, NULL);
}

/* query, key and value depend on weights; mask: -1 for none. */
static int attention(struct graph *graph, int mask, int *scores) {
  int query = tensor(graph, VALUE_INITIALIZER, (struct shape){3, {BATCH, TOKENS, WIDTH}});
  int key = tensor(graph, VALUE_INITIALIZER, (struct shape){3, {BATCH, WIDTH, TOKENS}});
  int value = tensor(graph, VALUE_INITIALIZER, (struct shape){3, {BATCH, TOKENS, WIDTH}});
  query = add(graph, "Mul", query, number(graph, 0.8f));
  key = add(graph, "Mul", key, number(graph, 0.8f));
  *scores = add(graph, "MatMul", query, key);
  if (mask >= 0)
    *scores = add(graph, "Add", *scores, mask);
  return add(graph, "MatMul", backward_unary(graph, "Softmax", *scores), value);
}

static void attention_is_recognised_and_computes_the_same(void **state) {
  int scores;
  (void)state;
  for (int masked = 0; masked < 2; masked++) {
    struct graph *graph = graph_start();
    int mask = masked ? tensor(graph, VALUE_CONSTANT, (struct shape){2, {TOKENS, TOKENS}}) : -1;
    output(graph, attention(graph, mask, &scores));
    fuse_and_compare(graph, "ScaledAttention");
  }
}

static void attention_with_a_trained_bias_is_left_alone(void **state) {
  struct graph *graph = graph_start();
  int scores, bias = tensor(graph, VALUE_INITIALIZER, (struct shape){2, {TOKENS, TOKENS}});
  (void)state;
  output(graph, attention(graph, bias, &scores));
  fuse_and_compare(graph, NULL);
}

static void attention_whose_scores_are_read_is_left_alone(void **state) {
  struct graph *graph = graph_start();
  int scores, y = attention(graph, -1, &scores);
  (void)state;
  backward_unary(graph, "Exp", scores);
  output(graph, y);
  fuse_and_compare(graph, NULL);
}

enum { SAMPLES = 2, CHANNELS = 3, PLACES = 3 };

static int mean_over(struct graph *graph, int x, int64_t a, int64_t b, bool keeps) {
  int64_t axes[] = {a, b};
  struct attr attrs[] = {attr_of_ints("axes", axes, 2), attr_of_int("keepdims", keeps)};
  return backward_node(graph, "ReduceMean", VALUES(x), (struct attr_list){attrs, 2});
}

static int turned(struct graph *graph, int x) {
  int64_t perm[] = {0, 2, 1};
  struct attr attrs[] = {attr_of_ints("perm", perm, 3)};
  return backward_node(graph, "Transpose", VALUES(x), (struct attr_list){attrs, 1});
}

/* A BatchNormalization of x whose statistics are computed of `of`, whose channels lie on the given axis. */
static int own_batch_norm(struct graph *graph, int x, int of, int64_t axis) {
  int64_t other = axis == 2 ? 1 : 2;
  int difference = add(graph, "Sub", of, mean_over(graph, of, 0, other, true));
  int inputs[] = {x, weight(graph, CHANNELS), weight(graph, CHANNELS), mean_over(graph, of, 0, other, false),
                  mean_over(graph, add(graph, "Mul", difference, difference), 0, other, false)};
  struct attr attrs[] = {attr_of_float("epsilon", 1e-3f)};
  return backward_node(graph, "BatchNormalization", (struct value_list){inputs, 5},
                       (struct attr_list){attrs, 1});
}

static int batch_norm_input(struct graph *graph) {
  return tensor(graph, VALUE_INITIALIZER, (struct shape){3, {SAMPLES, CHANNELS, PLACES}});
}

static void batch_norm_without_running_statistics_is_recognised_and_computes_the_same(void **state) {
  (void)state;
  for (int is_turned = 0; is_turned < 2;
       is_turned++) { /* as the newer exporter writes it, and the older one */
    struct graph *graph = graph_start();
    int x = batch_norm_input(graph);
    output(graph, own_batch_norm(graph, x, is_turned ? turned(graph, x) : x, is_turned ? 2 : 1));
    fuse_and_compare(graph, "BatchNormTraining");
  }
}

static void batch_norm_of_other_statistics_is_left_alone(void **state) {
  struct graph *other = graph_start(), *axis = graph_start(), *wrongly_turned = graph_start();
  int x = batch_norm_input(other);
  (void)state;
  output(other, own_batch_norm(other, x, batch_norm_input(other), 1));
  fuse_and_compare(other, NULL);
  x = batch_norm_input(axis);
  output(axis, own_batch_norm(axis, x, x, 2));
  fuse_and_compare(axis, NULL);
  x = batch_norm_input(wrongly_turned);
  output(wrongly_turned, own_batch_norm(wrongly_turned, x, turned(wrongly_turned, x), 1));
  fuse_and_compare(wrongly_turned, NULL);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gelu_is_recognised_and_computes_the_same),
      cmocka_unit_test(a_curve_like_gelu_is_left_alone),
      cmocka_unit_test(gelu_by_tanh_is_recognised_in_the_forms_of_exporters),
      cmocka_unit_test(activations_by_a_gate_are_recognised),
      cmocka_unit_test(a_gate_of_something_else_is_left_alone),
      cmocka_unit_test(layer_norm_is_recognised_and_computes_the_same),
      cmocka_unit_test(a_difference_from_another_mean_is_no_layer_norm),
      cmocka_unit_test(attention_is_recognised_and_computes_the_same),
      cmocka_unit_test(attention_with_a_trained_bias_is_left_alone),
      cmocka_unit_test(attention_whose_scores_are_read_is_left_alone),
      cmocka_unit_test(batch_norm_without_running_statistics_is_recognised_and_computes_the_same),
      cmocka_unit_test(batch_norm_of_other_statistics_is_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

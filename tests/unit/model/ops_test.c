/* Ops: what they refuse, and what the reference backend promises its callers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/graph/op.h"
#include "worker/backend/backend.h"

static struct shape shape_of(int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (struct shape){.rank = rank, .dim = {a, b, c, d}};
}

/* Infers a node of op `name` on f32 inputs of these shapes, as the loader would, without graph_add_node's
   CHECK. Expects INVALID with `text` in the message. */
static void expect_refusal(const char *name, const struct shape *inputs, int n_inputs, struct attr_list attrs,
                           const char *text) {
  struct graph *graph = graph_new();
  int in[OP_INPUTS_MAX], out;
  struct node node = {.op = op_find("", name), .name = "n", .n_inputs = n_inputs, .n_outputs = 1};
  struct err err = ERR_NONE;
  graph->opset = 17;
  for (int i = 0; i < n_inputs; i++)
    in[i] = graph_add_input(graph, NULL, DTYPE_F32, &inputs[i]);
  out = graph_add_value(graph, (struct value){.kind = VALUE_RESULT});
  node.inputs = in;
  node.outputs = &out;
  node.attrs = attrs.at;
  node.n_attrs = attrs.n;
  assert_int_equal(node.op->infer(graph, &node, &err), ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' is not in '%s'", text, err.text);
  graph_free(graph);
}

static void shapes_that_do_not_fit_are_refused_with_both_named(void **state) {
  struct shape matrices[] = {shape_of(2, 3, 4, 0, 0), shape_of(2, 5, 6, 0, 0)};
  struct shape images[] = {shape_of(4, 1, 3, 8, 8), shape_of(4, 4, 2, 3, 3)};
  (void)state;
  expect_refusal("MatMul", matrices, 2, ATTRS_NONE, "[3,4] and [5,6]");
  expect_refusal("Gemm", matrices, 2, ATTRS_NONE, "[3,4] and [5,6]");
  expect_refusal("Add", matrices, 2, ATTRS_NONE, "[3,4] and [5,6]");
  expect_refusal("Conv", images, 2, ATTRS_NONE, "[1,3,8,8] and weights of shape [4,2,3,3]");
}

static struct attr text_attr(const char *name, const char *text) {
  return (struct attr){.name = name, .type = ATTR_STRING, .s = text};
}

static void recurrent_layers_that_do_not_fit_together_are_refused(void **state) {
  struct shape lstm[] = {shape_of(3, 5, 2, 4, 0), shape_of(3, 1, 12, 4, 0), shape_of(3, 1, 12, 3, 0),
                         shape_of(2, 2, 24, 0, 0)};
  struct shape empty[] = {shape_of(3, 0, 2, 4, 0), lstm[1], lstm[2]};
  struct attr direction = text_attr("direction", "sideways");
  const char *const unknown[] = {"Sigmoid", "Tanh", "Cosine"};
  struct attr functions = {.name = "activations", .type = ATTR_STRINGS, .strings = unknown, .n = 2};
  (void)state;
  expect_refusal("LSTM", lstm, 4, ATTRS_NONE, "f32[2,24] where f32[1,24] is needed");
  expect_refusal("GRU", lstm, 3, ATTRS_NONE, "f32[1,12,4] where f32[1,9,4] is needed");
  expect_refusal("LSTM", empty, 3, ATTRS_NONE, "nothing to compute");
  expect_refusal("LSTM", lstm, 3, ATTR_LIST(direction), "'sideways'");
  expect_refusal("LSTM", lstm, 3, ATTR_LIST(functions), "must name 3 functions");
}

static void equations_that_do_not_fit_are_refused(void **state) {
  static const struct {
    const char *equation, *text;
  } cases[] = {
      {"ij,jk->iz", "a letter in its output that no term has"},
      {"ij,jk->ii", "a letter twice in its output"},
      {"ij", "is not a list of terms, one for each input"},
      {"ij,jk,kl->il", "has more terms than there are inputs"},
      {"ij,jk->i,k", "is not a list of terms and an output"},
      {"i1,jk->ik", "is not a list of terms"},
      {"i....,jk->ik", "is not a list of terms"},
      {"ijk,jk->ik", "does not fit shape [3,4]"},
      {"ij,ik->jk", "the same letter stands for 3 elsewhere"},
      {"", "is not a list of terms"},
  };
  struct shape matrices[] = {shape_of(2, 3, 4, 0, 0), shape_of(2, 5, 6, 0, 0)};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct attr equation = text_attr("equation", cases[i].equation);
    expect_refusal("Einsum", matrices, 2, ATTR_LIST(equation), cases[i].text);
  }
}

static void attributes_out_of_range_are_refused(void **state) {
  int64_t kernel[] = {3, 3}, negative[] = {-1, 0, 0, 0}, huge[] = {INT64_MAX, 1}, twice[] = {1, 1};
  struct shape image = shape_of(4, 1, 3, 8, 8), matrix = shape_of(2, 3, 4, 0, 0);
  struct attr axis = {.name = "axis", .type = ATTR_INT, .i = 7};
  struct attr perm = {.name = "perm", .type = ATTR_INTS, .ints = twice, .n = 2};
  struct attr pool[] = {{.name = "kernel_shape", .type = ATTR_INTS, .ints = kernel, .n = 2},
                        {.name = "pads", .type = ATTR_INTS, .ints = negative, .n = 4}};
  (void)state;
  expect_refusal("Softmax", &matrix, 1, ATTR_LIST(axis), "axis 7");
  expect_refusal("Flatten", &matrix, 1, ATTR_LIST(axis), "axis 7");
  expect_refusal("Transpose", &matrix, 1, ATTR_LIST(perm), "perm");
  expect_refusal("MaxPool", &image, 1, ATTRS_NONE, "kernel_shape");
  expect_refusal("MaxPool", &image, 1, (struct attr_list){pool, 2}, "'pads' holds -1");
  pool[1] = (struct attr){.name = "strides", .type = ATTR_INTS, .ints = huge, .n = 2};
  expect_refusal("AveragePool", &image, 1, (struct attr_list){pool, 2},
                 "'strides' holds 9223372036854775807");
  pool[1] = (struct attr){.name = "auto_pad", .type = ATTR_STRING, .s = "SAME"};
  expect_refusal("AveragePool", &image, 1, (struct attr_list){pool, 2}, "'SAME'");
  kernel[0] = 9;
  expect_refusal("MaxPool", &image, 1, (struct attr_list){pool, 1}, "spans 9");
}

/* logits f32[3,2] -> CrossEntropy with labels i64[3] */
static struct graph *classifier(void) {
  struct shape logits = shape_of(2, 3, 2, 0, 0), labels = shape_of(1, 3, 0, 0, 0);
  struct graph *graph = graph_new();
  int inputs[2];
  graph->opset = 17;
  inputs[0] = graph_add_input(graph, NULL, DTYPE_F32, &logits);
  inputs[1] = graph_add_input(graph, NULL, DTYPE_I64, &labels);
  graph_add_node(graph, "CrossEntropy", (struct value_list){inputs, 2}, 2, ATTRS_NONE);
  return graph;
}

static void a_label_out_of_range_is_refused_with_its_value_and_sample(void **state) {
  static const float logits[6] = {0};
  (void)state;
  for (int b = 0; backend_at(b); b++)
    for (int64_t bad = -1; bad <= 2; bad += 3) {
      const int64_t labels[] = {0, 1, bad};
      const void *inputs[] = {logits, labels};
      struct graph *graph = classifier();
      struct backend_run run = {.inputs = inputs};
      struct backend_program *program;
      struct err err = ERR_NONE;
      char text[64];
      assert_int_equal(backend_at(b)->prepare(&(struct backend_request){.graph = graph}, &program, &err),
                       ERR_OK);
      assert_int_equal(backend_at(b)->run(program, &run, &err), ERR_INVALID);
      snprintf(text, sizeof text, "label %d of sample 2", (int)bad);
      if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
      backend_at(b)->release(program);
      graph_free(graph);
    }
}

static void an_integer_division_by_zero_is_an_error(void **state) {
  static const int64_t a[] = {4, 5}, zero[] = {1, 0};
  struct shape pair = shape_of(1, 2, 0, 0, 0);
  struct graph *graph = graph_new();
  const void *inputs[] = {a, zero};
  struct backend_run run = {.inputs = inputs};
  struct backend_program *program;
  struct err err = ERR_NONE;
  int in[2];
  (void)state;
  graph->opset = 17;
  for (int i = 0; i < 2; i++)
    in[i] = graph_add_input(graph, NULL, DTYPE_I64, &pair);
  graph_add_node(graph, "Div", (struct value_list){in, 2}, 1, ATTRS_NONE);
  assert_int_equal(backend_find("ref")->prepare(&(struct backend_request){.graph = graph}, &program, &err),
                   ERR_OK);
  assert_int_equal(backend_find("ref")->run(program, &run, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "element 1"));
  backend_find("ref")->release(program);
  graph_free(graph);
}

/* x -> Relu -> Mul by a weight -> Exp -> Neg -> Sub of Relu's result, each f32[4]. */
struct chain {
  struct graph *graph;
  int weight, watched[5];
};

static void chain_init(struct chain *chain) {
  static const float ones[4] = {1, 1, 1, 1};
  struct shape shape = shape_of(1, 4, 0, 0, 0);
  struct graph *graph = graph_new();
  int x = graph_add_input(graph, NULL, DTYPE_F32, &shape);
  graph->opset = 17;
  chain->graph = graph;
  chain->weight = graph_add_value(graph, (struct value){.name = "w",
                                                        .kind = VALUE_INITIALIZER,
                                                        .dtype = DTYPE_F32,
                                                        .shape = shape,
                                                        .data = ones,
                                                        .producer = -1});
  chain->watched[0] = graph_add_node(graph, "Relu", VALUES(x), 1, ATTRS_NONE)->outputs[0];
  chain->watched[1] =
      graph_add_node(graph, "Mul", VALUES(chain->watched[0], chain->weight), 1, ATTRS_NONE)->outputs[0];
  chain->watched[2] =
      graph_add_node(graph, "Exp", (struct value_list){&chain->watched[1], 1}, 1, ATTRS_NONE)->outputs[0];
  chain->watched[3] =
      graph_add_node(graph, "Neg", (struct value_list){&chain->watched[2], 1}, 1, ATTRS_NONE)->outputs[0];
  chain->watched[4] =
      graph_add_node(graph, "Sub", VALUES(chain->watched[3], chain->watched[0]), 1, ATTRS_NONE)->outputs[0];
}

/* What the callbacks of an execution saw. */
struct record {
  int weight; /* the value that may be announced */
  int calls;
  int order[8];      /* watch indices; -1: the weight was announced */
  float first[8];    /* element 0 */
  int cancel_before; /* call number; -1 */
};

static void record_value(void *user, int watch, const float *data) {
  struct record *record = user;
  record->first[record->calls] = data[0];
  record->order[record->calls++] = watch;
}

static void record_weight(void *user, int value) {
  struct record *record = user;
  assert_int_equal(value, record->weight);
  record->order[record->calls++] = -1;
}

static bool record_cancels(void *user) {
  const struct record *record = user;
  return record->calls == record->cancel_before;
}

static int run_chain(const struct backend_def *backend, struct record *record, size_t *bytes) {
  static const float x[4] = {2, -1, 0.5f, 3}, weight[4] = {0.5f, 1, 1, 1};
  const void *inputs[] = {x};
  const float *weights[16] = {NULL};
  struct backend_run run = {.inputs = inputs,
                            .weights = weights,
                            .on_value = record_value,
                            .before_weight = record_weight,
                            .is_cancelled = record_cancels,
                            .user = record};
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct backend_request request;
  struct chain chain;
  int code;
  chain_init(&chain);
  request = (struct backend_request){.graph = chain.graph, .watched = chain.watched, .n_watched = 5};
  weights[chain.weight] = weight;
  record->weight = chain.weight;
  assert_int_equal(backend->prepare(&request, &program, &err), ERR_OK);
  *bytes = backend->memory_bytes(program);
  code = backend->run(program, &run, &err);
  backend->release(program);
  graph_free(chain.graph);
  return code;
}

static void watched_values_come_in_node_order_after_the_weights_they_need(void **state) {
  static const int order[] = {0, -1, 1, 2, 3, 4};
  (void)state;
  for (int b = 0; backend_at(b); b++) {
    struct record record = {.cancel_before = -1};
    size_t bytes;
    assert_int_equal(run_chain(backend_at(b), &record, &bytes), ERR_OK);
    assert_int_equal(record.calls, 6);
    assert_memory_equal(record.order, order, sizeof order);
    assert_float_equal(record.first[0], 2.0f, 0);
    assert_float_equal(record.first[2], 1.0f, 0);
    assert_float_equal(record.first[4], -2.7182817f, 1e-5);
    assert_float_equal(record.first[5], -4.7182817f, 1e-5);
  }
}

static void an_execution_is_cancelled_between_nodes(void **state) {
  (void)state;
  for (int b = 0; backend_at(b); b++) {
    struct record record = {.cancel_before = 3};
    size_t bytes;
    assert_int_equal(run_chain(backend_at(b), &record, &bytes), ERR_CANCELLED);
    assert_int_equal(record.calls, 3);
  }
}

/* Relu's result is read again at the end; the others follow each other in one place. */
static void the_reference_backend_computes_in_place_what_nobody_else_reads(void **state) {
  struct record record = {.cancel_before = -1};
  size_t bytes;
  (void)state;
  assert_int_equal(run_chain(backend_find("ref"), &record, &bytes), ERR_OK);
  assert_int_equal(bytes, 2 * 64);
}

enum { DROPPED = 64 };

static void keep_output(void *user, int watch, const float *data) {
  memcpy((float *)user + watch * DROPPED, data, DROPPED * sizeof(float));
}

/* Two dropouts of x f32[DROPPED] of ones -> out f32[2,DROPPED] */
static void run_dropouts(const struct backend_def *backend, struct op_context context, float *out) {
  struct shape shape = shape_of(1, DROPPED, 0, 0, 0);
  struct graph *graph = graph_new();
  float x[DROPPED];
  const void *inputs[] = {x};
  struct backend_run run = {.inputs = inputs, .context = context, .on_value = keep_output, .user = out};
  struct backend_program *program;
  struct err err = ERR_NONE;
  int in, watched[2];
  for (int i = 0; i < DROPPED; i++)
    x[i] = 1;
  graph->opset = 17;
  graph->is_training = true;
  in = graph_add_input(graph, NULL, DTYPE_F32, &shape);
  for (int n = 0; n < 2; n++)
    watched[n] = graph_add_node(graph, "Dropout", VALUES(in), 1, ATTRS_NONE)->outputs[0];
  assert_int_equal(
      backend->prepare(&(struct backend_request){.graph = graph, .watched = watched, .n_watched = 2},
                       &program, &err),
      ERR_OK);
  assert_int_equal(backend->run(program, &run, &err), ERR_OK);
  backend->release(program);
  graph_free(graph);
}

static void dropout_is_drawn_from_seed_step_microbatch_and_node(void **state) {
  const struct op_context contexts[] = {{1, 2, 3}, {9, 2, 3}, {1, 9, 3}, {1, 2, 9}};
  float first[2 * DROPPED], again[2 * DROPPED];
  (void)state;
  run_dropouts(backend_find("ref"), contexts[0], first);
  assert_memory_not_equal(first, first + DROPPED, DROPPED * sizeof(float));
  for (int i = 0; i < DROPPED; i++)
    assert_true(first[i] == 0 || first[i] == 2);
  for (int b = 0; backend_at(b); b++) {
    run_dropouts(backend_at(b), contexts[0], again);
    assert_memory_equal(again, first, sizeof first);
    for (int c = 1; c < 4; c++) {
      run_dropouts(backend_at(b), contexts[c], again);
      assert_memory_not_equal(again, first, DROPPED * sizeof(float));
    }
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_that_do_not_fit_are_refused_with_both_named),
      cmocka_unit_test(attributes_out_of_range_are_refused),
      cmocka_unit_test(recurrent_layers_that_do_not_fit_together_are_refused),
      cmocka_unit_test(equations_that_do_not_fit_are_refused),
      cmocka_unit_test(a_label_out_of_range_is_refused_with_its_value_and_sample),
      cmocka_unit_test(an_integer_division_by_zero_is_an_error),
      cmocka_unit_test(watched_values_come_in_node_order_after_the_weights_they_need),
      cmocka_unit_test(an_execution_is_cancelled_between_nodes),
      cmocka_unit_test(the_reference_backend_computes_in_place_what_nobody_else_reads),
      cmocka_unit_test(dropout_is_drawn_from_seed_step_microbatch_and_node),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

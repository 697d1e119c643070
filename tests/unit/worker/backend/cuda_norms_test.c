/* What the cuda backend's folds and losses do that no case of an op shows: statistics of many elements, and
   labels that are none, in every loss. On a simulated device (tests/simulation/cuda). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "tests/support/worker/find_simulation.h"
#include "worker/backend/plugin.h"

enum { OUTPUTS_MAX = 8 };

/* One node, executed once. */
struct single {
  struct graph *graph;
  const struct node *node;
  const void *inputs[4];
  float *values[OUTPUTS_MAX];
};

static void keep_value(void *user, int watch, const float *data) {
  struct single *s = user;
  size_t size_bytes = (size_t)shape_elems(&node_output(s->graph, s->node, watch)->shape) * sizeof(float);
  s->values[watch] = arena_copy(&s->graph->arena, data, size_bytes);
}

static int execute(struct single *s, const char *name, struct err *err) {
  const struct backend_def *backend = plugin_backend(name, err);
  struct backend_program *program = NULL;
  struct backend_run run = {.inputs = s->inputs, .on_value = keep_value, .user = s};
  *err = ERR_NONE;
  assert_non_null(backend);
  if (backend->prepare(&(struct backend_request){.graph = s->graph,
                                                 .watched = s->node->outputs,
                                                 .n_watched = s->node->n_outputs},
                       &program, err) == ERR_OK)
    backend->run(program, &run, err);
  backend->release(program);
  return err->code;
}

/* Channels whose mean is a thousand times their deviation, each of more elements than one block takes. */
static void batch_statistics_of_many_elements_are_those_of_f64_sums(void **state) {
  const struct shape shape = {4, {8, 2, 96, 96}}, vector = {1, {2}};
  struct single s = {.graph = graph_new()};
  int64_t elems = shape_elems(&shape);
  float *x = arena_new(&s.graph->arena, (size_t)elems * sizeof *x), ones[2] = {1, 1};
  float *expected[4];
  struct err err;
  (void)state;
  for (int64_t i = 0; i < elems; i++)
    x[i] = 1000.0f + random_uniform(3, (uint64_t)i);
  s.inputs[0] = x;
  s.inputs[1] = s.inputs[2] = ones;
  int inputs[] = {graph_add_input(s.graph, "x", DTYPE_F32, &shape),
                  graph_add_input(s.graph, "scale", DTYPE_F32, &vector),
                  graph_add_input(s.graph, "bias", DTYPE_F32, &vector)};
  s.node = graph_add_node(s.graph, "BatchNormTraining", (struct value_list){inputs, 3}, 4, ATTRS_NONE);
  assert_int_equal(execute(&s, "ref", &err), ERR_OK);
  memcpy(expected, s.values, sizeof expected);
  assert_int_equal(execute(&s, "cuda", &err), ERR_OK);
  for (int o = 1; o < 4; o++)
    for (int c = 0; c < 2; c++)
      assert_true(fabs((double)s.values[o][c] - expected[o][c]) <= 1e-6 * fabs((double)expected[o][c]));
  graph_free(s.graph);
}

static void a_label_that_is_no_class_is_refused_as_ref_does(void **state) {
  static const char *const losses[] = {"CrossEntropy", "SoftmaxCrossEntropyLoss",
                                       "NegativeLogLikelihoodLoss"};
  const struct shape scores = {3, {2, 3, 2}}, labels = {2, {2, 2}};
  const float x[12] = {0};
  const int64_t label[4] = {0, 2, 1, 3};
  (void)state;
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
    struct single s = {.graph = graph_new(), .inputs = {x, label}};
    struct err ref, cuda;
    s.graph->opset = 17;
    int inputs[] = {graph_add_input(s.graph, "x", DTYPE_F32, &scores),
                    graph_add_input(s.graph, "labels", DTYPE_I64, &labels)};
    s.node = graph_add_node(s.graph, losses[i], (struct value_list){inputs, 2}, 1, ATTRS_NONE);
    assert_int_equal(execute(&s, "ref", &ref), ERR_INVALID);
    assert_int_equal(execute(&s, "cuda", &cuda), ERR_INVALID);
    assert_string_equal(cuda.text, ref.text);
    graph_free(s.graph);
  }
}

static void a_label_of_a_linear_loss_that_is_no_class_is_refused_as_ref_does(void **state) {
  const struct shape hidden = {2, {3, 4}}, weight = {2, {4, 5}}, labels = {1, {3}};
  const float zeros[20] = {0};
  const int64_t label[3] = {4, -100, -1};
  struct single s = {.graph = graph_new(), .inputs = {zeros, zeros, label}};
  struct err ref, cuda;
  (void)state;
  int inputs[] = {graph_add_input(s.graph, "hidden", DTYPE_F32, &hidden),
                  graph_add_input(s.graph, "weight", DTYPE_F32, &weight), -1,
                  graph_add_input(s.graph, "labels", DTYPE_I64, &labels)};
  s.node = graph_add_node(s.graph, "LinearCrossEntropy", (struct value_list){inputs, 4}, 1, ATTRS_NONE);
  assert_int_equal(execute(&s, "ref", &ref), ERR_INVALID);
  assert_int_equal(execute(&s, "cuda", &cuda), ERR_INVALID);
  assert_string_equal(cuda.text, ref.text);
  graph_free(s.graph);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_statistics_of_many_elements_are_those_of_f64_sums),
      cmocka_unit_test(a_label_that_is_no_class_is_refused_as_ref_does),
      cmocka_unit_test(a_label_of_a_linear_loss_that_is_no_class_is_refused_as_ref_does),
  };
  if (!find_simulation("1"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}

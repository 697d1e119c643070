/* Batch norm, random draws and dropout: what a model does in training alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/graph_run.h"
#include "tests/support/model/model_fixture.h"
#include "tests/support/model/onnx_build.h"

enum { SAMPLES = MODEL_SAMPLES, BATCH = 8 };

static void batch_norm_in_training_keeps_statistics(void **state) {
  static const int opsets[] = {9, 13, 14, 15};
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct onnx_build build;
    struct model *model;
    float block[METRICS + 4];
    build_batch_norm(&build, opsets[i], true);
    model = open_model(&build, NULL);
    assert_int_equal(count_ops(model->train, "BatchNormTraining"), 1);
    assert_int_equal(count_ops(model->train, "BatchNormalization"), 0);
    assert_int_equal(count_ops(model->eval, "BatchNormalization"), 1);
    assert_int_equal(model->eval->nodes[0]->n_outputs, 1);
    assert_int_equal(node_attr_int(model->eval->nodes[0], "training_mode", 0), 0);
    assert_true(node_attr_float(model->train->nodes[0], "epsilon", 0) == 0.5f);
    assert_int_equal(model->n_params, 2);
    assert_string_equal(model->params[0].name, "bias");
    assert_string_equal(model->params[1].name, "scale");
    assert_int_equal(model->n_statistics, 2);
    assert_string_equal(model->statistics[0].name, "var"); /* the file's order */
    assert_string_equal(model->statistics[1].name, "mean");
    assert_int_equal(model->statistics[0].begin, METRICS);
    assert_int_equal(model->statistics[1].begin, METRICS + 2);
    assert_int_equal(model->row_elems, METRICS + 4);
    assert_true(model->statistics[0].momentum == 0.75f);
    assert_int_equal(model->statistics[0].batch_value, model->train->nodes[0]->outputs[2]);
    assert_int_equal(model->statistics[1].batch_value, model->train->nodes[0]->outputs[1]);
    assert_int_equal(model->eval->values[model->statistics[1].eval_value].statistic, 1);
    assert_int_equal(model->initializers[1].statistic, 0);
    assert_int_equal(graph_find(model->train, "mean"), -1);
    model_initial_block(model, 1, block);
    assert_true(block[0] == 0 && block[METRICS - 1] == 0 && block[METRICS] == 1 && block[METRICS + 1] == 2);
    assert_memory_equal(block + METRICS + 2, build.graph.initializer[3]->raw_data.data, 8);
    model_close(model);
    onnx_build_fini(&build);
  }
}

static void batch_norm_in_inference_form_keeps_its_statistics_fixed(void **state) {
  static const int opsets[] = {9, 15};
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct onnx_build build;
    struct model *model;
    build_batch_norm(&build, opsets[i], false);
    model = open_model(&build, NULL);
    assert_int_equal(model->n_statistics, 0);
    assert_int_equal(model->n_params, 2);
    assert_string_equal(model->params[0].name, "bias");
    assert_int_equal(count_ops(model->train, "BatchNormalization"), 1);
    model_close(model);
    onnx_build_fini(&build);
  }
}

/* Whether the batch norm trains, of a file of that opset whose node says so (1), says no (0) or says nothing
   (-1). */
static bool batch_norm_trains(int opset, int says, const char *producer, const char *rule) {
  struct onnx_build build;
  struct test_spec spec;
  struct model *model;
  bool trains;
  spec_init(&spec);
  spec.model.batch_norm = (char *)rule;
  build_batch_norm(&build, opset, says == 1);
  if (says < 0 && opset >= 14)
    build.graph.node[0]->n_attribute--;
  build.model.producer_name = (char *)producer;
  model = open_model(&build, &spec);
  trains = count_ops(model->train, "BatchNormTraining") == 1;
  assert_int_equal(model->n_statistics, trains ? 2 : 0);
  assert_int_equal(count_ops(model->train, "BatchNormalization"), !trains);
  assert_int_equal(count_ops(model->eval, "BatchNormalization"), 1);
  model_close(model);
  onnx_build_fini(&build);
  return trains;
}

static void the_spec_or_else_the_file_says_whether_batch_norm_trains(void **state) {
  (void)state;
  assert_true(batch_norm_trains(17, -1, "pytorch", NULL));
  assert_true(batch_norm_trains(17, -1, "pytorch", "auto"));
  assert_false(batch_norm_trains(17, -1, "other", "auto"));
  assert_false(batch_norm_trains(17, -1, NULL, "auto"));
  assert_false(batch_norm_trains(17, 0, "pytorch", "auto"));
  assert_true(batch_norm_trains(17, 1, "other", "auto"));
  assert_false(batch_norm_trains(13, -1, "pytorch", "auto")); /* outputs tell there */
  for (int says = -1; says < 2; says++)
    for (int opset = 13; opset <= 17; opset += 4) {
      assert_true(batch_norm_trains(opset, says, "pytorch", "train"));
      assert_false(batch_norm_trains(opset, says, "pytorch", "fixed"));
    }
}

/* x -> y = x w * (draw / 0.75), where the draw is 1 with probability 0.75. way: how it is written. */
static void build_draw(struct onnx_build *build, int way) {
  static const char *const comparisons[] = {"Less", "Greater", "LessOrEqual", "GreaterOrEqual"};
  Onnx__TensorProto *tensor;
  Onnx__NodeProto *node;
  float p = way == 5 ? 0.25f : 0.75f, q = 0.75f;
  onnx_build_init(build, 17);
  onnx_build_input(build, "x", DIMS(-1, 3));
  onnx_build_weight(build, "w", DIMS(3, 2));
  onnx_build_node(build, "MatMul", NULL, "x,w", "h");
  for (int i = 0; i < 2; i++) {
    tensor = onnx_build_tensor(build, "", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
    onnx_build_raw(build, tensor, i ? &q : &p, sizeof p);
    node = onnx_build_node(build, "Constant", NULL, "", i ? "q" : "p");
    onnx_build_attr(build, node, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)->t = tensor;
  }
  if (way == 0) {
    onnx_build_node(build, "Expand", NULL, "p,s", "ps");
    onnx_build_node(build, "Shape", NULL, "h", "s");
    onnx_build_node(build, "Bernoulli", NULL, "ps", "d");
  } else {
    node = onnx_build_node(build, "RandomUniformLike", NULL, "h", "r");
    if (way == 5) { /* of [-1, 4): a quarter lies below 0.25 */
      onnx_build_float(build, node, "low", -1);
      onnx_build_float(build, node, "high", 4);
    }
    onnx_build_node(build, comparisons[(way - 1) % 4], NULL, way % 2 ? "r,p" : "p,r", "b");
    onnx_build_int(build, onnx_build_node(build, "Cast", NULL, "b", "d"), "to", 1);
  }
  onnx_build_node(build, "Div", NULL, "d,q", "s1");
  onnx_build_node(build, "Mul", NULL, "h,s1", "y");
  onnx_build_output(build, "y");
}

static void inference_takes_the_expectation_of_a_draw(void **state) {
  (void)state;
  for (int way = 0; way < 6; way++) {
    struct onnx_build build;
    struct model *model;
    struct arena arena;
    struct err err = ERR_NONE;
    void **data;
    float x[SAMPLES * 3];
    int64_t labels[SAMPLES] = {0};
    const float *y = NULL, *h = NULL;
    build_draw(&build, way);
    model = open_model(&build, NULL);
    assert_int_equal(count_ops(model->train, "RandomUniformLike") + count_ops(model->train, "Bernoulli"), 1);
    assert_int_equal(count_ops(model->eval, "RandomUniformLike") + count_ops(model->eval, "Bernoulli"), 0);
    arena_init(&arena);
    data = mem_new((size_t)model->eval->n_values * sizeof *data);
    for (int i = 0; i < SAMPLES * 3; i++)
      x[i] = (float)(i % 5) - 2;
    data[model->eval->inputs[0]] = x;
    data[model->eval->inputs[1]] = labels;
    assert_int_equal(graph_run(model->eval, data, &arena, &err), 0);
    y = data[graph_find(model->eval, "y")];
    h = data[graph_find(model->eval, "h")];
    for (int i = 0; i < SAMPLES * 2; i++)
      assert_true(y[i] == (way == 5 ? h[i] * (0.25f / 0.75f) : h[i]));
    free(data);
    arena_fini(&arena);
    model_close(model);
    onnx_build_fini(&build);
  }
}

static void a_running_statistic_has_one_user(void **state) {
  struct onnx_build build;
  (void)state;
  build_batch_norm(&build, 15, true);
  build.graph.node[0]->input[4] = build.graph.node[0]->input[3];
  refuse_model(&build, NULL, ERR_UNSUPPORTED, "running statistic 'mean' is updated a second time");
  build_batch_norm(&build, 15, true);
  build.graph.node[2]->output[0] = (char *)"f";
  onnx_build_node(&build, "Add", "reader", "f,mean", "y");
  refuse_model(&build, NULL, ERR_UNSUPPORTED, "node 'reader' (Add): reads 'mean'");
  build_batch_norm(&build, 15, true);
  build.graph.node[2]->output[0] = (char *)"f";
  onnx_build_node(&build, "Add", NULL, "f,new_mean", "y");
  refuse_model(&build, NULL, ERR_UNSUPPORTED,
               "node 'bn' (BatchNormalization): its output 'new_mean' is read");
  build_batch_norm(&build, 15, true);
  build.graph.node[0]->attribute[0]->f = 2;
  refuse_model(&build, NULL, ERR_INVALID, "node 'bn' (BatchNormalization): its momentum is 2");
}

static void build_dropout(struct onnx_build *build, int opset, const char *inputs) {
  uint8_t yes = 1;
  float half = 0.5f;
  Onnx__TensorProto *tensor;
  onnx_build_init(build, opset);
  onnx_build_input(build, "x", DIMS(-1, 3));
  onnx_build_weight(build, "w", DIMS(3));
  tensor = onnx_build_tensor(build, "ratio", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
  onnx_build_raw(build, tensor, &half, sizeof half);
  onnx_build_add(build, tensor);
  tensor = onnx_build_tensor(build, "yes", ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, NULL, 0);
  onnx_build_raw(build, tensor, &yes, 1);
  onnx_build_add(build, tensor);
  onnx_build_node(build, "Mul", NULL, "x,w", "a");
  onnx_build_node(build, "Dropout", "drop", inputs, "y,mask");
  onnx_build_output(build, "y");
}

static void dropout_drops_where_training_asks_for_it(void **state) {
  static const struct {
    int opset;
    const char *inputs;
    int drops;
  } cases[] = {{9, "a", 1}, {13, "a,ratio,yes", 1}, {13, "a,ratio", 0}, {13, "a", 0}};
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct onnx_build build;
    struct model *model;
    build_dropout(&build, cases[i].opset, cases[i].inputs);
    model = open_model(&build, NULL);
    assert_int_equal(count_ops(model->train, "Dropout"), cases[i].drops);
    assert_int_equal(count_ops(model->eval, "Dropout"), 0);
    assert_int_equal(model->n_params, 1);
    model_close(model);
    onnx_build_fini(&build);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batch_norm_in_training_keeps_statistics),
      cmocka_unit_test(batch_norm_in_inference_form_keeps_its_statistics_fixed),
      cmocka_unit_test(the_spec_or_else_the_file_says_whether_batch_norm_trains),
      cmocka_unit_test(inference_takes_the_expectation_of_a_draw),
      cmocka_unit_test(a_running_statistic_has_one_user),
      cmocka_unit_test(dropout_drops_where_training_asks_for_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The model of a run: parameters, statistics, blocks, and both graphs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/sha256.h"
#include "model/model.h"
#include "tests/support/graph_run.h"
#include "tests/support/onnx_build.h"

enum { SAMPLES = 4, BATCH = 8 };

/* A spec with what a test sets in it. */
struct test_spec {
  Weir__RunSpec run;
  Weir__ModelSpec model;
  Weir__ModelSpec__InputsEntry entries[2], *entry_list[2];
  char *frozen[2];
};

static void spec_init(struct test_spec *spec) {
  weir__run_spec__init(&spec->run);
  weir__model_spec__init(&spec->model);
  spec->run.model = &spec->model;
  spec->model.frozen = spec->frozen;
  spec->model.inputs = spec->entry_list;
  for (int i = 0; i < 2; i++) {
    weir__model_spec__inputs_entry__init(&spec->entries[i]);
    spec->entry_list[i] = &spec->entries[i];
  }
}

static void spec_freeze(struct test_spec *spec, const char *pattern) {
  spec->frozen[spec->model.n_frozen++] = (char *)pattern;
}

static void spec_map(struct test_spec *spec, const char *input, const char *column) {
  spec->entries[spec->model.n_inputs].key = (char *)input;
  spec->entries[spec->model.n_inputs++].value = (char *)column;
}

static struct model *open_model(struct onnx_build *build, const struct test_spec *spec) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (model_open(bytes, size, spec ? &spec->run : NULL, SAMPLES, &model, &err))
    fail_msg("%s", err.text);
  return model;
}

/* The model is refused with the code and a text that holds this one. Ends the build. */
static void refuse(struct onnx_build *build, const struct test_spec *spec, enum err_code code,
                   const char *text) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  int returned = model_open(bytes, size, spec ? &spec->run : NULL, SAMPLES, &model, &err);
  assert_int_equal(returned, err.code);
  assert_null(model);
  if (err.code != code || !strstr(err.text, text))
    fail_msg("expected %s '%s', got %s '%s'", err_name(code), text, err_name(err.code), err.text);
  onnx_build_fini(build);
}

static int count_ops(const struct graph *graph, const char *op) {
  int count = 0;
  for (int n = 0; n < graph->n_nodes; n++)
    count += strcmp(graph->nodes[n]->op->name, op) == 0;
  return count;
}

static void parameters_come_in_initializer_order(void **state) {
  static const char *const names[] = {"w1", "b1", "w2", "b2"};
  static const uint64_t begins[] = {0, 12, 16, 24};
  struct onnx_build build;
  struct model *model;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  model = open_model(&build, NULL);
  assert_int_equal(model->n_params, 4);
  assert_int_equal(model->n_initializers, 4);
  for (int p = 0; p < 4; p++) {
    const struct param *param = &model->params[p];
    assert_string_equal(param->name, names[p]);
    assert_int_equal(param->begin, begins[p]);
    assert_int_equal(model->initializers[p].param, p);
    assert_int_equal(model->train->values[param->train_value].param, p);
    assert_int_equal(model->eval->values[param->eval_value].param, p);
    assert_string_equal(model->eval->values[param->eval_value].name, names[p]);
    assert_true(shape_is_same(&model->train->values[param->grad].shape, &param->shape));
  }
  assert_int_equal(model->param_elems, 26);
  assert_int_equal(model->row_elems, METRICS);
  assert_int_equal(model->labels.classes, 2);
  assert_int_equal(model->n_blocks, 2);
  assert_string_equal(model->input_columns[0], "");
  assert_string_equal(model->label_column, "");
  assert_int_equal(model->train->n_inputs, 3); /* x, labels, scale */
  assert_int_equal(model->eval->n_inputs, 2);
  assert_int_equal(model->n_columns, 1);
  assert_true(model->has_labels);
  assert_int_equal(model->train->values[model->train->inputs[1]].dtype, DTYPE_I64);
  assert_int_equal(model->train->values[model->train->inputs[1]].shape.dim[0], SAMPLES);
  assert_int_equal(model->eval->values[model->eval->outputs[0]].shape.dim[1], 2);
  model_close(model);
  onnx_build_fini(&build);
}

static void blocks_cut_large_tensors_and_pack_small_neighbours(void **state) {
  static const struct block expected[] = {
      {BLOCK_PARAMETERS, 0, 65536, 0},    {BLOCK_PARAMETERS, 65536, 65536, 0},
      {BLOCK_PARAMETERS, 131072, 928, 0}, {BLOCK_PARAMETERS, 132000, 44, 0},
      {BLOCK_STATISTICS, 0, METRICS, 0},
  };
  struct onnx_build build;
  struct model *model;
  float *out = mem_new(65536 * sizeof *out);
  (void)state;
  onnx_build_mlp(&build, 11, 12000, 2);
  build.graph.n_initializer = build.graph.n_node = 0;
  onnx_build_weight(&build, "w1", DIMS(11, 12000));
  onnx_build_weight(&build, "w2", DIMS(11, 3));
  onnx_build_weight(&build, "b2", DIMS(11));
  onnx_build_node(&build, "Gemm", "wide", "x,w1", "h");
  onnx_build_node(&build, "ReduceMean", "narrow", "h", "m");
  onnx_build_node(&build, "Mul", "scaled", "x,b2", "xs");
  onnx_build_node(&build, "Gemm", "out", "xs,w2", "o");
  onnx_build_node(&build, "Add", "sum", "o,m", "y");
  model = open_model(&build, NULL);
  assert_int_equal(model->n_blocks, 5);
  assert_int_equal(model->n_param_blocks, 4);
  for (int b = 0; b < 5; b++) {
    assert_int_equal(model->blocks[b].kind, expected[b].kind);
    assert_int_equal(model->blocks[b].begin, expected[b].begin);
    assert_int_equal(model->blocks[b].elems, expected[b].elems);
  }
  model_initial_block(model, 1, out);
  assert_memory_equal(out, (float *)build.graph.initializer[0]->raw_data.data + 65536, 65536 * 4);
  model_initial_block(model, 3, out);
  assert_memory_equal(out, build.graph.initializer[1]->raw_data.data, 33 * 4);
  assert_memory_equal(out + 33, build.graph.initializer[2]->raw_data.data, 11 * 4);
  model_close(model);
  onnx_build_fini(&build);
  free(out);
}

/* A chain of Mul by vectors: tensors of any size. */
static void small_neighbours_share_a_block_while_they_fit(void **state) {
  static const int64_t sizes[] = {65536, 40000, 25536, 1, 65535, 65537, 3};
  static const uint32_t expected[] = {65536, 65536, 65536, 65536, 1, 3, METRICS};
  struct onnx_build build;
  struct model *model;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 2));
  for (int i = 0; i < 7; i++) {
    char name[8], mean[8], to[8], pair[20];
    snprintf(name, sizeof name, "w%d", i);
    snprintf(mean, sizeof mean, "m%d", i);
    snprintf(to, sizeof to, "y%d", i);
    onnx_build_weight(&build, name, &sizes[i], 1);
    onnx_build_node(&build, "ReduceMean", NULL, name, mean);
    if (i == 0)
      snprintf(pair, sizeof pair, "x,m0");
    else
      snprintf(pair, sizeof pair, "y%d,%s", i - 1, mean);
    onnx_build_node(&build, "Mul", NULL, pair, to);
  }
  onnx_build_output(&build, "y6");
  model = open_model(&build, NULL);
  assert_int_equal(model->n_blocks, 7);
  for (int b = 0; b < 7; b++)
    assert_int_equal(model->blocks[b].elems, expected[b]);
  model_close(model);
  onnx_build_fini(&build);
}

static void frozen_initializers_are_not_trained(void **state) {
  struct onnx_build build;
  struct model *model;
  struct test_spec spec = {0};
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  spec_init(&spec);
  spec_freeze(&spec, "?1");
  model = open_model(&build, &spec);
  assert_int_equal(model->n_params, 2);
  assert_string_equal(model->params[0].name, "w2");
  assert_int_equal(model->initializers[0].param, -1);
  assert_int_equal(count_ops(model->train, "ReluGrad"), 0); /* nothing behind it is trained */
  model_close(model);
  onnx_build_fini(&build);

  onnx_build_mlp(&build, 3, 4, 2);
  spec_freeze(&spec, "pos_*");
  refuse(&build, &spec, ERR_INVALID, "model.frozen: 'pos_*' matches no initializer");
  spec.frozen[1] = (char *)"*";
  onnx_build_mlp(&build, 3, 4, 2);
  refuse(&build, &spec, ERR_INVALID, "nothing to train");
}

static void a_tied_weight_is_one_parameter(void **state) {
  struct onnx_build build;
  struct model *model;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3));
  onnx_build_weight(&build, "w", DIMS(3, 3));
  onnx_build_node(&build, "MatMul", NULL, "x,w", "a");
  onnx_build_node(&build, "MatMul", NULL, "a,w", "y");
  onnx_build_output(&build, "y");
  model = open_model(&build, NULL);
  assert_int_equal(model->n_params, 1);
  assert_int_equal(model->param_elems, 9);
  model_close(model);
  onnx_build_fini(&build);
}

/* x f32[N,2,3,3] -> BatchNormalization -> GlobalAveragePool -> Flatten -> y f32[N,2] */
static void build_batch_norm(struct onnx_build *build, int opset, bool trains) {
  Onnx__NodeProto *node;
  float variance[] = {1, 2};
  Onnx__TensorProto *tensor;
  onnx_build_init(build, opset);
  onnx_build_input(build, "x", DIMS(-1, 2, 3, 3));
  onnx_build_weight(build, "bias", DIMS(2));
  tensor = onnx_build_tensor(build, "var", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(2));
  onnx_build_raw(build, tensor, variance, sizeof variance);
  onnx_build_add(build, tensor);
  onnx_build_weight(build, "scale", DIMS(2));
  onnx_build_weight(build, "mean", DIMS(2));
  node = onnx_build_node(build, "BatchNormalization", "bn", "x,scale,bias,mean,var",
                         !trains       ? "n"
                         : opset >= 14 ? "n,new_mean,new_var"
                                       : "n,mean_out,var_out,saved_mean,saved_var");
  onnx_build_float(build, node, "momentum", 0.75f);
  onnx_build_float(build, node, "epsilon", 0.5f);
  if (opset >= 14)
    onnx_build_int(build, node, "training_mode", trains);
  onnx_build_node(build, "GlobalAveragePool", NULL, "n", "p");
  onnx_build_node(build, "Flatten", NULL, "p", "y");
  onnx_build_output(build, "y");
}

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
  refuse(&build, NULL, ERR_UNSUPPORTED, "running statistic 'mean' is updated a second time");
  build_batch_norm(&build, 15, true);
  build.graph.node[2]->output[0] = (char *)"f";
  onnx_build_node(&build, "Add", "reader", "f,mean", "y");
  refuse(&build, NULL, ERR_UNSUPPORTED, "node 'reader' (Add): reads 'mean'");
  build_batch_norm(&build, 15, true);
  build.graph.node[2]->output[0] = (char *)"f";
  onnx_build_node(&build, "Add", NULL, "f,new_mean", "y");
  refuse(&build, NULL, ERR_UNSUPPORTED, "node 'bn' (BatchNormalization): its output 'new_mean' is read");
  build_batch_norm(&build, 15, true);
  build.graph.node[0]->attribute[0]->f = 2;
  refuse(&build, NULL, ERR_INVALID, "node 'bn' (BatchNormalization): its momentum is 2");
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

static void an_output_that_the_loss_does_not_take_is_named(void **state) {
  struct onnx_build build;
  struct test_spec spec = {0};
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  onnx_build_node(&build, "ReduceSum", NULL, "y", "flat");
  onnx_build_int(&build, build.graph.node[3], "keepdims", 0);
  build.graph.output[0]->name = (char *)"flat";
  spec_init(&spec);
  refuse(&build, &spec, ERR_INVALID,
         "loss 'cross_entropy' takes an output f32[samples,classes,...], but the model's output 'flat' is "
         "f32[]");
  spec.model.loss = (char *)"hinge";
  onnx_build_mlp(&build, 3, 4, 2);
  refuse(&build, &spec, ERR_INVALID,
         "model.loss: there is no loss 'hinge', known are: bce_with_logits, cross");
  onnx_build_mlp(&build, 3, 4, 2);
  refuse(&build, &spec, ERR_INVALID, "nor has the model such an output: its are 'y'");
}

/* A model f32[N,4,3,2] -> y of that shape, with the loss and options of the spec. */
static void build_scores(struct onnx_build *build) {
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, 4, 3, 2));
  onnx_build_weight(build, "w", DIMS(4, 1, 1));
  onnx_build_node(build, "Mul", NULL, "x,w", "y");
  onnx_build_output(build, "y");
}

static void labels_follow_from_the_output_and_the_loss(void **state) {
  static const struct {
    const char *loss;
    int64_t class_axis; /* 0: by default */
    int64_t classes;
    enum dtype dtype;
    struct shape labels;
    double sample_denominator;
  } cases[] = {
      {"cross_entropy", 0, 4, DTYPE_I64, {3, {SAMPLES, 3, 2}}, 0},
      {"nll", -1, 2, DTYPE_I64, {3, {SAMPLES, 4, 3}}, 0},
      {"cross_entropy", 2, 3, DTYPE_I64, {3, {SAMPLES, 4, 2}}, 0},
      {"mse", 0, 0, DTYPE_F32, {4, {SAMPLES, 4, 3, 2}}, 24},
      {"bce_with_logits", 0, 0, DTYPE_F32, {4, {SAMPLES, 4, 3, 2}}, 24},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Weir__LossOptions options = WEIR__LOSS_OPTIONS__INIT;
    struct test_spec spec = {0};
    struct onnx_build build;
    struct model *model;
    const struct value *labels;
    build_scores(&build);
    spec_init(&spec);
    spec.model.loss = (char *)cases[i].loss;
    spec.model.loss_options = &options;
    options.has_class_axis = cases[i].class_axis != 0;
    options.class_axis = cases[i].class_axis;
    model = open_model(&build, &spec);
    labels = &model->train->values[model->train->inputs[1]];
    assert_int_equal(model->labels.classes, cases[i].classes);
    assert_int_equal(labels->dtype, cases[i].dtype);
    assert_true(shape_is_same(&labels->shape, &cases[i].labels));
    assert_true(model->labels.sample_denominator == cases[i].sample_denominator);
    assert_int_equal(model->train_loss.correct >= 0, cases[i].classes > 0);
    model_close(model);
    onnx_build_fini(&build);
  }
}

static void options_that_do_not_fit_the_loss_or_the_output_are_named(void **state) {
  double weights[] = {1, 2, 3};
  Weir__CheckpointSpec checkpoint = WEIR__CHECKPOINT_SPEC__INIT;
  struct test_spec spec = {0};
  struct onnx_build build;
  (void)state;
  spec_init(&spec);
  Weir__LossOptions options = WEIR__LOSS_OPTIONS__INIT;
  spec.model.loss_options = &options;
  options.weight = weights;
  options.n_weight = 3;
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID,
         "loss_options.weight: 3 weights, but the model's output 'y', [4,4,3,2], has 4");
  spec.model.loss = (char *)"mse";
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID,
         "model.loss_options.weight: the loss 'mse' has no such option; it has none");
  spec.model.loss = (char *)"y";
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID,
         "model.loss_options.weight: the loss 'y' has no such option; it has none");
  options.n_weight = 0;
  options.has_beta = true;
  spec.model.loss = (char *)"huber";
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID,
         "model.loss_options.beta: the loss 'huber' has no such option; it has delta");
  options.has_beta = false;
  options.has_class_axis = true;
  spec.model.loss = NULL;
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID, "class_axis: 0 is none of the dimensions behind the first of 4");
  options.has_class_axis = false;
  spec.model.loss = (char *)"l1";
  spec.run.checkpoint = &checkpoint;
  checkpoint.keep_best = (char *)"accuracy";
  build_scores(&build);
  refuse(&build, &spec, ERR_INVALID, "checkpoint.keep_best: the loss 'l1' has no classes");
}

/* x f32[N,3], target f32[N,3] -> each = (x w - target)^2 f32[N,3], mean f32[] */
static void build_own_loss(struct onnx_build *build) {
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, 3));
  onnx_build_input(build, "target", DIMS(-1, 3));
  onnx_build_weight(build, "w", DIMS(3));
  onnx_build_node(build, "Mul", NULL, "x,w", "prediction");
  onnx_build_node(build, "Sub", NULL, "prediction,target", "d");
  onnx_build_node(build, "Mul", NULL, "d,d", "each");
  onnx_build_int(build, onnx_build_node(build, "ReduceMean", NULL, "each", "mean"), "keepdims", 0);
  onnx_build_output(build, "prediction");
  onnx_build_output(build, "each");
  onnx_build_output(build, "mean");
}

/* The mean of a model with own loss over SAMPLES samples, and its gradient by w[0]. */
static double own_loss(const struct model *model, float *grad) {
  const struct graph *graph = model->train;
  struct arena arena = {0};
  struct err err = ERR_NONE;
  float x[SAMPLES * 3], target[SAMPLES * 3], scale;
  void **data = mem_new((size_t)graph->n_values * sizeof *data);
  double loss;
  for (int i = 0; i < SAMPLES * 3; i++) {
    x[i] = 2 * random_uniform(1, (uint64_t)i) - 1;
    target[i] = 2 * random_uniform(2, (uint64_t)i) - 1;
  }
  scale = (float)(1 / (SAMPLES * model->labels.sample_denominator));
  data[graph->inputs[0]] = x;
  data[graph->inputs[1]] = target;
  data[graph->inputs[2]] = &scale;
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  loss = (double)*(float *)data[model->train_loss.loss_sum] * (double)scale;
  *grad = *(float *)data[model->params[0].grad];
  arena_fini(&arena);
  free(data);
  return loss;
}

static void an_output_of_the_model_may_be_the_loss(void **state) {
  struct test_spec spec = {0};
  struct onnx_build build;
  double losses[2];
  float grads[2];
  (void)state;
  spec_init(&spec);
  spec_map(&spec, "x", "images");
  spec_map(&spec, "target", "wanted");
  for (int i = 0; i < 2; i++) {
    struct model *model;
    spec.model.loss = (char *)(i ? "mean" : "each");
    build_own_loss(&build);
    model = open_model(&build, &spec);
    assert_false(model->has_labels);
    assert_int_equal(model->n_columns, 2);
    assert_string_equal(model->input_columns[1], "wanted");
    assert_int_equal(model->eval->n_inputs, 2);
    assert_true(model->labels.sample_denominator == (i ? 1 : 3));
    losses[i] = own_loss(model, &grads[i]);
    model_close(model);
    onnx_build_fini(&build);
  }
  assert_true(losses[0] > 0 && fabs(losses[0] - losses[1]) < 1e-6 * losses[0]);
  assert_true(grads[0] != 0 && fabsf(grads[0] - grads[1]) <= 1e-6f * fabsf(grads[0]));
  spec.model.labels = (char *)"wanted";
  build_own_loss(&build);
  refuse(&build, &spec, ERR_INVALID,
         "model.labels: the loss is the model's output 'mean', which takes no labels");
  spec.model.labels = NULL;
  build_own_loss(&build);
  onnx_build_int(&build, onnx_build_node(&build, "Flatten", NULL, "each", "flat"), "axis", 0);
  build.graph.output[2]->name = (char *)"flat";
  spec.model.loss = (char *)"flat";
  refuse(&build, &spec, ERR_INVALID, "model.loss: the output 'flat' is f32[1,12]; a loss is f32[]");
}

static void several_inputs_need_their_columns(void **state) {
  struct onnx_build build;
  struct test_spec spec = {0};
  struct model *model;
  (void)state;
  spec_init(&spec);
  for (int round = 0; round < 4; round++) {
    onnx_build_init(&build, 13);
    onnx_build_input(&build, "x", DIMS(-1, 3));
    onnx_build_input(&build, "z", DIMS(-1, 3));
    onnx_build_input(&build, "unused", DIMS(-1, 3));
    onnx_build_weight(&build, "w", DIMS(3));
    onnx_build_node(&build, "Mul", NULL, "x,w", "a");
    onnx_build_node(&build, "Add", NULL, "a,z", "y");
    onnx_build_output(&build, "y");
    if (round == 0) {
      spec_map(&spec, "x", "left");
      refuse(&build, &spec, ERR_INVALID, "input 'z' has no dataset column: name one for each of 'x', 'z'");
    } else if (round == 1) {
      spec_map(&spec, "q", "right");
      refuse(&build, &spec, ERR_INVALID, "depends on no input 'q', but on 'x', 'z'");
    } else if (round == 2) { /* a look at the file */
      model = open_model(&build, NULL);
      assert_string_equal(model->input_columns[1], "");
      model_close(model);
      onnx_build_fini(&build);
    } else {
      spec.entries[1].key = (char *)"z";
      spec.model.labels = (char *)"kind";
      model = open_model(&build, &spec);
      assert_int_equal(model->train->n_inputs, 4);
      assert_string_equal(model->input_columns[0], "left");
      assert_string_equal(model->input_columns[1], "right");
      assert_string_equal(model->label_column, "kind");
      model_close(model);
      onnx_build_fini(&build);
    }
  }
}

static void weights_must_be_finite(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  ((float *)build.graph.initializer[1]->raw_data.data)[2] = 1.0f / 0.0f;
  refuse(&build, NULL, ERR_INVALID, "initializer 'b1': element 2 is inf");
}

/* Loss of one microbatch at the file's weights, with an element of a parameter moved by `shift`. *grad: the
   element of its gradient. */
static double loss_when(const struct model *model, const struct param *param, uint64_t element, float shift,
                        float *grad) {
  const struct graph *graph = model->train;
  struct arena arena = {0};
  struct err err = ERR_NONE;
  void **data = mem_new((size_t)graph->n_values * sizeof *data);
  int64_t labels[SAMPLES] = {0, 1, 1, 0}, n = shape_elems(&graph->values[graph->inputs[0]].shape);
  float *x = arena_new(&arena, (size_t)n * sizeof *x), *weights, scale = 1.0f / BATCH;
  double loss;
  for (int64_t i = 0; i < n; i++)
    x[i] = 2 * random_uniform(1, (uint64_t)i) - 1;
  weights = arena_copy(&arena, graph->values[param->train_value].data, param->elems * sizeof *weights);
  weights[element] += shift;
  data[graph->inputs[0]] = x;
  data[graph->inputs[1]] = labels;
  data[graph->inputs[2]] = &scale;
  data[param->train_value] = weights;
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  loss = *(float *)data[model->train_loss.loss_sum];
  if (grad)
    *grad = ((float *)data[param->grad])[element];
  arena_fini(&arena);
  free(data);
  return loss;
}

static void check_gradients(struct onnx_build *build, int n_params) {
  struct model *model = open_model(build, NULL);
  assert_int_equal(model->n_params, n_params);
  for (int p = 0; p < n_params; p++) {
    const struct param *param = &model->params[p];
    for (uint64_t element = 0; element < param->elems; element += 1 + param->elems / 4) {
      float grad, h = 0.004f;
      double numeric;
      loss_when(model, param, element, 0, &grad);
      numeric = (loss_when(model, param, element, h, NULL) - loss_when(model, param, element, -h, NULL)) /
                (2 * (double)h) / BATCH;
      if (!(numeric - grad < 2e-3 && grad - numeric < 2e-3))
        fail_msg("%s[%d]: gradient %g, by differences %g", param->name, (int)element, (double)grad, numeric);
    }
  }
  model_close(model);
  onnx_build_fini(build);
}

static void gradients_are_those_of_the_mean_over_the_step(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  check_gradients(&build, 4);
}

/* Conv, batch norm in training, MaxPool, a residual Add, Gemm. */
static void gradients_pass_a_small_cnn(void **state) {
  struct onnx_build build;
  Onnx__NodeProto *node;
  Onnx__AttributeProto *attr;
  int64_t pads[] = {1, 1, 1, 1}, two[] = {2, 2};
  float ones[] = {1, 1, 1};
  Onnx__TensorProto *tensor;
  (void)state;
  onnx_build_init(&build, 15);
  onnx_build_input(&build, "x", DIMS(-1, 1, 6, 6));
  onnx_build_weight(&build, "kernel", DIMS(3, 1, 3, 3));
  onnx_build_weight(&build, "scale", DIMS(3));
  onnx_build_weight(&build, "shift", DIMS(3));
  onnx_build_weight(&build, "mean", DIMS(3));
  tensor = onnx_build_tensor(&build, "var", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(3));
  onnx_build_raw(&build, tensor, ones, sizeof ones);
  onnx_build_add(&build, tensor);
  onnx_build_weight(&build, "w", DIMS(27, 2));
  onnx_build_weight(&build, "b", DIMS(2));
  node = onnx_build_node(&build, "Conv", "conv", "x,kernel", "c");
  attr = onnx_build_attr(&build, node, "pads", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
  attr->ints = pads;
  attr->n_ints = 4;
  node = onnx_build_node(&build, "BatchNormalization", "bn", "c,scale,shift,mean,var", "n,m,v");
  onnx_build_int(&build, node, "training_mode", 1);
  onnx_build_node(&build, "Tanh", NULL, "n", "t");
  onnx_build_node(&build, "Add", NULL, "t,c", "r");
  node = onnx_build_node(&build, "MaxPool", NULL, "r", "p");
  for (int i = 0; i < 2; i++) {
    attr = onnx_build_attr(&build, node, i ? "strides" : "kernel_shape",
                           ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attr->ints = two;
    attr->n_ints = 2;
  }
  onnx_build_node(&build, "Flatten", NULL, "p", "f");
  onnx_build_node(&build, "Gemm", NULL, "f,w,b", "y");
  onnx_build_output(&build, "y");
  check_gradients(&build, 5);
}

static void the_hash_walks_weights_and_statistics_in_file_order(void **state) {
  struct onnx_build build;
  struct model *model;
  float params[] = {1, 2, 3, 4}, row[] = {9, 9, 9, 9, 9, 5, 6, 7, 8};
  float expected[] = {1, 2, 5, 6, 3, 4, 7, 8}; /* bias, var, scale, mean */
  char hex[65], expected_hex[65];
  (void)state;
  build_batch_norm(&build, 15, true);
  model = open_model(&build, NULL);
  model_weights_sha256(model, params, row, hex);
  sha256_hex(expected, sizeof expected, expected_hex);
  assert_string_equal(hex, expected_hex);
  model_close(model);
  onnx_build_fini(&build);
}

static void damaged_models_never_crash(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 3000; round++) {
    struct onnx_build build;
    struct err err = ERR_NONE;
    struct model *model;
    size_t size;
    unsigned char *bytes;
    if (round % 2)
      build_batch_norm(&build, 15, true);
    else
      onnx_build_mlp(&build, 2, 3, 2);
    bytes = (unsigned char *)onnx_build_pack(&build, &size);
    for (uint64_t flip = 0; flip <= round % 3; flip++)
      bytes[random_bits(round, 2 * flip) % size] = (unsigned char)random_bits(round, 2 * flip + 1);
    model_open(bytes, size, NULL, SAMPLES, &model, &err);
    model_close(model);
    onnx_build_fini(&build);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_come_in_initializer_order),
      cmocka_unit_test(blocks_cut_large_tensors_and_pack_small_neighbours),
      cmocka_unit_test(small_neighbours_share_a_block_while_they_fit),
      cmocka_unit_test(frozen_initializers_are_not_trained),
      cmocka_unit_test(a_tied_weight_is_one_parameter),
      cmocka_unit_test(batch_norm_in_training_keeps_statistics),
      cmocka_unit_test(batch_norm_in_inference_form_keeps_its_statistics_fixed),
      cmocka_unit_test(the_spec_or_else_the_file_says_whether_batch_norm_trains),
      cmocka_unit_test(inference_takes_the_expectation_of_a_draw),
      cmocka_unit_test(a_running_statistic_has_one_user),
      cmocka_unit_test(dropout_drops_where_training_asks_for_it),
      cmocka_unit_test(an_output_that_the_loss_does_not_take_is_named),
      cmocka_unit_test(labels_follow_from_the_output_and_the_loss),
      cmocka_unit_test(options_that_do_not_fit_the_loss_or_the_output_are_named),
      cmocka_unit_test(an_output_of_the_model_may_be_the_loss),
      cmocka_unit_test(several_inputs_need_their_columns),
      cmocka_unit_test(weights_must_be_finite),
      cmocka_unit_test(gradients_are_those_of_the_mean_over_the_step),
      cmocka_unit_test(gradients_pass_a_small_cnn),
      cmocka_unit_test(the_hash_walks_weights_and_statistics_in_file_order),
      cmocka_unit_test(damaged_models_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

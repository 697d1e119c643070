/* The model of a run: parameters, statistics, blocks, and both graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/sha256.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/graph_run.h"
#include "tests/support/model/model_fixture.h"
#include "tests/support/model/onnx_build.h"

enum { SAMPLES = MODEL_SAMPLES, BATCH = 8 };

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
      {.kind = BLOCK_PARAMETERS, .begin = 0, .elems = 65536},
      {.kind = BLOCK_PARAMETERS, .begin = 65536, .elems = 65536},
      {.kind = BLOCK_PARAMETERS, .begin = 131072, .elems = 928},
      {.kind = BLOCK_PARAMETERS, .begin = 132000, .elems = 44},
      {.kind = BLOCK_STATISTICS, .begin = 0, .elems = METRICS},
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
  refuse_model(&build, &spec, ERR_INVALID, "model.frozen: 'pos_*' matches no initializer");
  spec.frozen[1] = (char *)"*";
  onnx_build_mlp(&build, 3, 4, 2);
  refuse_model(&build, &spec, ERR_INVALID, "nothing to train");
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
      refuse_model(&build, &spec, ERR_INVALID,
                   "input 'z' has no dataset column: name one for each of 'x', 'z'");
    } else if (round == 1) {
      spec_map(&spec, "q", "right");
      refuse_model(&build, &spec, ERR_INVALID, "depends on no input 'q', but on 'x', 'z'");
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
  refuse_model(&build, NULL, ERR_INVALID, "initializer 'b1': element 2 is inf");
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
    model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err);
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
      cmocka_unit_test(several_inputs_need_their_columns),
      cmocka_unit_test(weights_must_be_finite),
      cmocka_unit_test(gradients_are_those_of_the_mean_over_the_step),
      cmocka_unit_test(gradients_pass_a_small_cnn),
      cmocka_unit_test(the_hash_walks_weights_and_statistics_in_file_order),
      cmocka_unit_test(damaged_models_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

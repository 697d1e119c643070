/* What `weir inspect` counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/terminal/inspection.h"
#include "common/agree/float_setting.h"
#include "tests/support/model/onnx_build.h"

/* Ends the build. */
static void open_inspection(struct inspection *inspection, struct onnx_build *build, int samples) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = samples}, &model, &err))
    fail_msg("%s", err.text);
  inspection_init(inspection, model, NULL, samples);
  onnx_build_fini(build);
}

static void layers_have_shapes_parameters_and_multiply_adds(void **state) {
  struct onnx_build build;
  struct inspection inspection;
  (void)state;
  onnx_build_mlp(&build, 3, 5, 2);
  open_inspection(&inspection, &build, 4);
  assert_int_equal(inspection.n_layers, 3); /* without the loss */
  assert_int_equal(inspection.layers[0].parameters, 3 * 5 + 5);
  assert_true(inspection.layers[0].multiply_adds == 4 * 3 * 5);
  assert_true(inspection.layers[1].multiply_adds == 0);
  assert_int_equal(inspection.layers[1].parameters, 0);
  assert_true(inspection.multiply_adds == 4 * 3 * 5 + 4 * 5 * 2);
  assert_int_equal(inspection.layers[2].shape->dim[1], 2);
  assert_string_equal(inspection.model->output.name, "y");
  assert_int_equal(inspection.n_operators, 2);
  assert_string_equal(inspection.operators[0].name, "Gemm");
  assert_int_equal(inspection.operators[0].nodes, 2);
  assert_string_equal(inspection.tensors[3].role, "trained");
  assert_int_equal(inspection.n_frozen, 0);
  assert_int_equal(inspection.memory.gradients_bytes, 4 * (3 * 5 + 5 + 5 * 2 + 2));
  inspection_fini(&inspection);
}

/* So many scores that the loss computes them itself, and no graph holds them. */
static void a_layer_that_the_loss_took_in_counts_once(void **state) {
  enum { SAMPLES = 64, CLASSES = 1 << 14 };
  struct onnx_build build;
  struct inspection inspection;
  (void)state;
  onnx_build_mlp(&build, 3, 5, CLASSES);
  open_inspection(&inspection, &build, SAMPLES);
  assert_int_equal(inspection.n_layers, 3);
  assert_string_equal(inspection.layers[2].node->op->name, "LinearCrossEntropy");
  assert_int_equal(inspection.layers[2].parameters, 5 * CLASSES + CLASSES);
  assert_true(inspection.multiply_adds >= SAMPLES * 5.0 * CLASSES);
  assert_string_equal(inspection.model->output.name, "y");
  assert_int_equal(inspection.model->output.shape.dim[1], CLASSES);
  inspection_fini(&inspection);
}

static void shared_parameters_count_once(void **state) {
  struct onnx_build build;
  struct inspection inspection;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  build.graph.node[2]->input[1] = (char *)"w1";
  open_inspection(&inspection, &build, 1);
  assert_int_equal(inspection.layers[0].parameters + inspection.layers[2].parameters, 4 + 2 + 2);
  assert_string_equal(inspection.tensors[2].role, "frozen"); /* w2, which nothing reads */
  assert_null(inspection.tensors[2].value);
  inspection_fini(&inspection);
}

static void multiply_adds_of_convolutions_and_recurrences(void **state) {
  struct onnx_build build;
  struct inspection inspection;
  Onnx__NodeProto *node;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 4, 6, 6));
  onnx_build_weight(&build, "w", DIMS(8, 2, 3, 3));
  onnx_build_weight(&build, "v", DIMS(8, 3, 2, 2));
  onnx_build_int(&build, onnx_build_node(&build, "Conv", NULL, "x,w", "c"), "group", 2);
  onnx_build_node(&build, "ConvTranspose", NULL, "c,v", "t");
  onnx_build_node(&build, "GlobalAveragePool", NULL, "t", "p");
  onnx_build_node(&build, "Flatten", NULL, "p", "y");
  onnx_build_output(&build, "y");
  open_inspection(&inspection, &build, 2);
  assert_true(inspection.layers[0].multiply_adds == 2 * 8 * 4 * 4 * (2 * 3 * 3));
  assert_true(inspection.layers[1].multiply_adds == 2 * 8 * 4 * 4 * (3 * 2 * 2));
  inspection_fini(&inspection);
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 5, 3));
  onnx_build_weight(&build, "w", DIMS(1, 8, 3));
  onnx_build_weight(&build, "r", DIMS(1, 8, 2));
  onnx_build_node(&build, "Transpose", NULL, "x", "q");
  node = onnx_build_node(&build, "LSTM", NULL, "q,w,r", ",h"); /* without its first output */
  onnx_build_int(&build, node, "hidden_size", 2);
  onnx_build_node(&build, "Flatten", NULL, "h", "y");
  onnx_build_output(&build, "y");
  build.graph.node[0]->n_attribute = 0;
  onnx_build_attr(&build, build.graph.node[0], "perm", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)->n_ints =
      3;
  build.graph.node[0]->attribute[0]->ints = (int64_t[]){1, 0, 2};
  build.graph.node[2]->n_attribute = 0;
  onnx_build_int(&build, build.graph.node[2], "axis", 2);
  open_inspection(&inspection, &build, 4);
  assert_true(inspection.layers[1].multiply_adds == 5 * 4 * (8 * 3 + 8 * 2));
  assert_int_equal(inspection.layers[1].shape->rank, 3);
  inspection_fini(&inspection);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_have_shapes_parameters_and_multiply_adds),
      cmocka_unit_test(a_layer_that_the_loss_took_in_counts_once),
      cmocka_unit_test(shared_parameters_count_once),
      cmocka_unit_test(multiply_adds_of_convolutions_and_recurrences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

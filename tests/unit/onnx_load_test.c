/* What exporters write besides plain nodes and f32: 16-bit floats, local functions, branches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/graph/op.h"
#include "common/half.h"
#include "tests/unit/onnx_build.h"

/* Loads and ends the build; the error is the caller's. */
static struct graph *try_load(struct onnx_build *build, struct err *err) {
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  *err = ERR_NONE;
  graph_load_onnx(bytes, size, &graph, err);
  if (graph && (graph_bind_batch(graph, 2, err) || graph_infer(graph, err))) {
    graph_free(graph);
    graph = NULL;
  }
  onnx_build_fini(build);
  return graph;
}

static struct graph *load(struct onnx_build *build) {
  struct err err;
  struct graph *graph = try_load(build, &err);
  if (!graph)
    fail_msg("%s", err.text);
  return graph;
}

static void refuse(struct onnx_build *build, enum err_code code, const char *text) {
  struct err err;
  assert_null(try_load(build, &err));
  if (err.code != code || !strstr(err.text, text))
    fail_msg("expected %s '%s', got %s '%s'", err_name(code), text, err_name(err.code), err.text);
}

static void sixteen_bit_floats_convert_exactly_and_back(void **state) {
  (void)state;
  assert_true(f32_of_f16(0x3c00) == 1.0f && f32_of_f16(0xc000) == -2.0f && f32_of_f16(0x7bff) == 65504.0f);
  assert_true(f32_of_f16(0x0001) == 0x1p-24f && f32_of_f16(0x03ff) == 1023 * 0x1p-24f);
  assert_true(f32_of_f16(0x7c00) == INFINITY && isnan(f32_of_f16(0x7e00)) && signbit(f32_of_f16(0x8000)));
  assert_true(f32_of_bf16(0x3f80) == 1.0f && f32_of_bf16(0xff80) == -INFINITY);
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    bool is_nan = (bits & 0x7fff) > 0x7c00, is_bf_nan = (bits & 0x7fff) > 0x7f80;
    assert_true(is_nan ? isnan(f32_of_f16(f16_of_f32(f32_of_f16((uint16_t)bits))))
                       : f16_of_f32(f32_of_f16((uint16_t)bits)) == bits);
    assert_true(is_bf_nan || bf16_of_f32(f32_of_bf16((uint16_t)bits)) == bits);
  }
  /* to the nearest, ties to even */
  assert_int_equal(f16_of_f32(1 + 0x1p-11f), 0x3c00);
  assert_int_equal(f16_of_f32(1 + 3 * 0x1p-11f), 0x3c02);
  assert_int_equal(f16_of_f32(65519.0f), 0x7bff);
  assert_int_equal(f16_of_f32(65520.0f), 0x7c00);
  assert_int_equal(f16_of_f32(0x1p-25f), 0);
  assert_int_equal(f16_of_f32(0x1.8p-25f), 1);
  assert_int_equal(f16_of_f32(-0x1p-30f), 0x8000);
  assert_int_equal(bf16_of_f32(1 + 0x1p-8f), 0x3f80);
  assert_int_equal(bf16_of_f32(3.4e38f), 0x7f80);
  assert_true(isnan(f32_of_bf16(bf16_of_f32(NAN))));
}

static void sixteen_bit_tensors_are_read_as_f32(void **state) {
  const uint16_t raw[] = {0x3c00, 0xc100};
  int32_t ints[] = {0x3fc0, 0xc040}; /* bf16 */
  struct onnx_build build;
  struct graph *graph;
  Onnx__TensorProto *tensor;
  const float *data;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  build.graph.input[0]->type->tensor_type->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
  tensor = onnx_build_tensor(&build, "half", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, DIMS(2));
  onnx_build_raw(&build, tensor, raw, sizeof raw);
  onnx_build_add(&build, tensor);
  tensor = onnx_build_tensor(&build, "bh", ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, DIMS(2));
  tensor->int32_data = ints;
  tensor->n_int32_data = 2;
  onnx_build_add(&build, tensor);
  onnx_build_node(&build, "Add", NULL, "y,half", "z");
  onnx_build_node(&build, "Mul", NULL, "z,bh", "u");
  build.graph.output[0]->name = (char *)"u";
  graph = load(&build);
  data = graph->values[graph_find(graph, "half")].data;
  assert_true(data[0] == 1.0f && data[1] == -2.5f);
  data = graph->values[graph_find(graph, "bh")].data;
  assert_true(data[0] == 1.5f && data[1] == -3.0f);
  assert_int_equal(graph->values[graph->inputs[0]].dtype, DTYPE_F32);
  graph_free(graph);
}

static void sixteen_bit_data_must_fit_its_shape(void **state) {
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  (void)state;
  for (size_t size = 0; size < 6; size++) {
    if (size == 4)
      continue;
    onnx_build_mlp(&build, 2, 2, 2);
    tensor = onnx_build_tensor(&build, "half", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, DIMS(2));
    onnx_build_raw(&build, tensor, "abcdef", size);
    onnx_build_add(&build, tensor);
    refuse(&build, ERR_INVALID, "initializer 'half' of shape [2] holds");
  }
}

static void every_type_that_is_not_there_is_named(void **state) {
  const int types[] = {11, 3, 4, 5, 12, 13};
  const char *names[] = {"f64", "i8", "u16", "i16", "u32", "u64"};
  struct onnx_build build;
  Onnx__NodeProto *node;
  char text[64];
  (void)state;
  for (int i = 0; i < 6; i++) {
    onnx_build_mlp(&build, 2, 2, 2);
    onnx_build_add(&build, onnx_build_tensor(&build, "a", types[i], DIMS(2)));
    build.graph.input[0]->type->tensor_type->elem_type = types[i];
    node = onnx_build_node(&build, "Identity", "cast", "y", "z"); /* any op: it has a type to name */
    onnx_build_int(&build, node, "to", types[i]);
    snprintf(text, sizeof text, "initializer 'a' (%s), input 'x' (%s)", names[i], names[i]);
    refuse(&build, ERR_UNSUPPORTED, text);
  }
  onnx_build_mlp(&build, 2, 2, 2);
  node = onnx_build_node(&build, "Identity", "cast", "y", "z");
  onnx_build_int(&build, node, "to", 11);
  refuse(&build, ERR_UNSUPPORTED, "'to' of node 'cast' (Identity to f64)");
}

static void casts_to_sixteen_bits_are_casts_to_f32(void **state) {
  struct onnx_build build;
  struct graph *graph;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  onnx_build_int(&build, onnx_build_node(&build, "Identity", "cast", "y", "z"), "to", 10);
  build.graph.output[0]->name = (char *)"z";
  graph = load(&build);
  assert_int_equal(node_attr_int(graph->nodes[3], "to", 0), ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
  graph_free(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_bit_floats_convert_exactly_and_back),
      cmocka_unit_test(sixteen_bit_tensors_are_read_as_f32),
      cmocka_unit_test(sixteen_bit_data_must_fit_its_shape),
      cmocka_unit_test(every_type_that_is_not_there_is_named),
      cmocka_unit_test(casts_to_sixteen_bits_are_casts_to_f32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

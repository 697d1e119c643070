/* What exporters write besides plain nodes and f32: 16-bit floats, constants, empty slices, lost names. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/half.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/graph_build.h"
#include "tests/support/model/onnx_build.h"

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
  graph = load_graph(&build);
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
    refuse_graph(&build, ERR_INVALID, "initializer 'half' of shape [2] holds");
  }
}

static void every_type_that_is_not_there_is_named(void **state) {
  const int types[] = {3, 4, 5, 12, 13, 11};
  const char *names[] = {"i8", "u16", "i16", "u32", "u64", "f64"};
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
    refuse_graph(&build, ERR_UNSUPPORTED, text);
  }
  onnx_build_mlp(&build, 2, 2, 2);
  node = onnx_build_node(&build, "Identity", "cast", "y", "z");
  onnx_build_int(&build, node, "to", 12);
  refuse_graph(&build, ERR_UNSUPPORTED, "'to' of node 'cast' (Identity to u32)");
}

static void casts_to_sixteen_bits_are_casts_to_f32(void **state) {
  struct onnx_build build;
  struct graph *graph;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  onnx_build_int(&build, onnx_build_node(&build, "Identity", "cast", "y", "z"), "to", 10);
  build.graph.output[0]->name = (char *)"z";
  graph = load_graph(&build);
  assert_int_equal(node_attr_int(graph->nodes[3], "to", 0), ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
  graph_free(graph);
}

static void add_constant(struct onnx_build *build, const char *node, const char *name,
                         Onnx__TensorProto *tensor) {
  onnx_build_attr(build, onnx_build_node(build, "Constant", node, "", name), "value",
                  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)
      ->t = tensor;
}

/* The older exporter computes the scale of attention so. */
static void constants_and_casts_of_f64_are_computed_in_f32(void **state) {
  const double number = -DBL_MAX, few[] = {3, 0.1};
  struct onnx_build build;
  struct graph *graph;
  Onnx__TensorProto *tensor;
  const float *data;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  tensor = onnx_build_tensor(&build, "", ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, NULL, 0);
  onnx_build_raw(&build, tensor, &number, sizeof number);
  add_constant(&build, NULL, "lowest", tensor);
  tensor = onnx_build_tensor(&build, "", ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, DIMS(2));
  tensor->double_data = (double *)few;
  tensor->n_double_data = 2;
  add_constant(&build, NULL, "few", tensor);
  onnx_build_int(&build, onnx_build_node(&build, "Cast", "cast", "y", "z"), "to", 11);
  onnx_build_node(&build, "Max", NULL, "z,lowest", "u");
  onnx_build_node(&build, "Mul", NULL, "u,few", "v");
  build.graph.output[0]->name = (char *)"v";
  graph = load_graph(&build);
  data = graph->values[graph_find(graph, "lowest")].data;
  assert_true(data[0] == -FLT_MAX);
  data = graph->values[graph_find(graph, "few")].data;
  assert_true(data[0] == 3.0f && data[1] == 0.1f);
  assert_int_equal(graph->values[graph->outputs[0]].dtype, DTYPE_F32);
  graph_free(graph);
}

static void f64_constants_must_fit_their_shape(void **state) {
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  (void)state;
  for (size_t size = 0; size < 24; size += 4) {
    if (size == 16)
      continue;
    onnx_build_mlp(&build, 2, 2, 2);
    tensor = onnx_build_tensor(&build, "", ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, DIMS(2));
    onnx_build_raw(&build, tensor, "abcdefghijklmnopqrstuvwx", size);
    add_constant(&build, "few", "f", tensor);
    refuse_graph(&build, ERR_INVALID, "attribute 'value' of node 'few' of shape [2] holds");
  }
}

static void add_index(struct onnx_build *build, const char *name, int64_t value) {
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(1));
  onnx_build_raw(build, tensor, &value, sizeof value);
  onnx_build_add(build, tensor);
}

/* y[:, 2:] of two columns, as rotary embeddings that turn all of them have it. */
static void add_empty_slice(struct onnx_build *build) {
  onnx_build_mlp(build, 2, 2, 2);
  add_index(build, "begin", 2);
  add_index(build, "end", INT64_MAX);
  add_index(build, "axis", 1);
  onnx_build_node(build, "Slice", "cut", "y,begin,end,axis", "nothing");
}

static void joining_nothing_changes_nothing(void **state) {
  struct onnx_build build;
  struct graph *graph;
  const struct node *node;
  (void)state;
  add_empty_slice(&build);
  onnx_build_node(&build, "Neg", NULL, "nothing", "still_nothing");
  onnx_build_int(&build, onnx_build_node(&build, "Concat", NULL, "still_nothing,y,nothing", "z"), "axis", 1);
  build.graph.output[0]->name = (char *)"z";
  graph = load_graph(&build);
  node = graph->nodes[graph->n_nodes - 1];
  assert_string_equal(node->op->name, "Concat");
  assert_int_equal(node->n_inputs, 1);
  assert_string_equal(graph->values[node->inputs[0]].name, "y");
  assert_int_equal(graph->values[graph->outputs[0]].shape.dim[1], 2);
  graph_free(graph);
}

static void computing_something_of_nothing_is_refused(void **state) {
  struct onnx_build build;
  (void)state;
  add_empty_slice(&build);
  onnx_build_add(&build, onnx_build_tensor(&build, "rows", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(0, 2)));
  onnx_build_node(&build, "MatMul", "product", "nothing,rows", "z");
  build.graph.output[0]->name = (char *)"z";
  refuse_graph(&build, ERR_INVALID, "node 'product' (MatMul): its input 'nothing' of shape [2,0] is empty");
}

/* A thousand sums of four million ones that a shape of 16 bytes makes. */
static void a_small_file_does_not_fold_for_minutes(void **state) {
  const int64_t dims[] = {2048, 2048};
  struct onnx_build build;
  struct graph *graph;
  Onnx__TensorProto *shape;
  char name[16], before[32] = "y";
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  shape = onnx_build_tensor(&build, "shape", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(2));
  onnx_build_raw(&build, shape, dims, sizeof dims);
  onnx_build_add(&build, shape);
  Onnx__NodeProto **nodes = arena_new(&build.arena, 3000 * sizeof *nodes);
  memcpy(nodes, build.graph.node, build.graph.n_node * sizeof *nodes);
  build.graph.node = nodes;
  onnx_build_node(&build, "ConstantOfShape", NULL, "shape", "big");
  for (int i = 0; i < 1000; i++) {
    char inputs[64];
    snprintf(name, sizeof name, "r%d", i);
    onnx_build_int(&build, onnx_build_node(&build, "ReduceSum", NULL, "big", name), "keepdims", 0);
    snprintf(inputs, sizeof inputs, "%s,%s", before, name);
    snprintf(before, sizeof before, "a%d", i);
    onnx_build_node(&build, "Add", NULL, inputs, before);
  }
  build.graph.output[0]->name = arena_strdup(&build.arena, before);
  graph = load_graph(&build);
  assert_false(has_op(graph, "ConstantOfShape"));
  assert_true(has_op(graph, "ReduceSum")); /* what is left for each execution */
  assert_true(graph->n_nodes < 3 + 1000 + 1000);
  graph_free(graph);
}

/* A metadata entry as newer files have it, in a field that our onnx.proto does not know. */
static void add_metadata(struct onnx_build *build, ProtobufCMessage *message, unsigned tag, const char *key,
                         const char *value) {
  Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
  ProtobufCMessageUnknownField *field = arena_new(&build->arena, sizeof *field);
  size_t size;
  entry.key = (char *)key;
  entry.value = (char *)value;
  size = onnx__string_string_entry_proto__get_packed_size(&entry);
  assert_true(size < 1 << 14);
  field->tag = tag;
  field->wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
  field->len = 2 + size;
  field->data = arena_new(&build->arena, field->len);
  field->data[0] = (uint8_t)(size | 0x80); /* a varint of two bytes */
  field->data[1] = (uint8_t)(size >> 7);
  onnx__string_string_entry_proto__pack(&entry, field->data + 2);
  message->unknown_fields = field;
  message->n_unknown_fields = 1;
}

static void parameters_that_the_exporter_lost_are_listed(void **state) {
  static const char key[] = "pkg.torch.export.ExportedProgram.graph_signature";
  struct onnx_build build;
  struct graph *graph;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  add_metadata(
      &build, &build.graph.base, 16, key,
      "\n# inputs\np_a: PARAMETER target='w1'\nb: BUFFER target='n'\np_c: PARAMETER target='c.weight'\n"
      "p_d: PARAMETER target='d'");
  graph = load_graph(&build);
  assert_int_equal(graph->n_lost, 2);
  assert_string_equal(graph->lost, "'c.weight', 'd'");
  graph_free(graph);
  onnx_build_mlp(&build, 2, 2, 2);
  add_metadata(
      &build, &build.graph.base, 16, key,
      "PARAMETER target='a' PARAMETER target='b' PARAMETER target='c' PARAMETER target='d' PARAMETER "
      "target='e' PARAMETER target='\x01' PARAMETER target='f");
  graph = load_graph(&build);
  assert_string_equal(graph->lost, "'a', 'b', 'c', 'd' and 1 more");
  graph_free(graph);
  onnx_build_mlp(&build, 2, 2, 2);
  add_metadata(&build, &build.graph.base, 16, "another", "PARAMETER target='a'");
  graph = load_graph(&build);
  assert_null(graph->lost);
  graph_free(graph);
}

static void the_error_of_a_fixed_batch_says_so(void **state) {
  struct onnx_build build;
  struct model *model;
  struct err err = ERR_NONE;
  size_t size;
  const void *bytes;
  Onnx__TensorProto *tensor;
  const int64_t fixed[] = {3, 2, 2};
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(3, 4));
  onnx_build_weight(&build, "w", DIMS(4, 4));
  tensor = onnx_build_tensor(&build, "shape", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(3));
  onnx_build_raw(&build, tensor, fixed, sizeof fixed);
  onnx_build_add(&build, tensor);
  onnx_build_node(&build, "MatMul", NULL, "x,w", "h");
  onnx_build_node(&build, "Reshape", NULL, "h,shape", "r");
  onnx_build_node(&build, "Flatten", NULL, "r", "y");
  onnx_build_output(&build, "y");
  bytes = onnx_build_pack(&build, &size);
  assert_int_equal(
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = 4}, &model, &err),
      ERR_INVALID);
  assert_non_null(strstr(err.text, "Reshape"));
  assert_non_null(strstr(err.text, "exported for a batch of 3, and this is a microbatch of 4"));
  assert_int_equal(
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = 3}, &model, &err), 0);
  model_close(model);
  onnx_build_fini(&build);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_bit_floats_convert_exactly_and_back),
      cmocka_unit_test(sixteen_bit_tensors_are_read_as_f32),
      cmocka_unit_test(sixteen_bit_data_must_fit_its_shape),
      cmocka_unit_test(every_type_that_is_not_there_is_named),
      cmocka_unit_test(casts_to_sixteen_bits_are_casts_to_f32),
      cmocka_unit_test(constants_and_casts_of_f64_are_computed_in_f32),
      cmocka_unit_test(f64_constants_must_fit_their_shape),
      cmocka_unit_test(joining_nothing_changes_nothing),
      cmocka_unit_test(computing_something_of_nothing_is_refused),
      cmocka_unit_test(a_small_file_does_not_fold_for_minutes),
      cmocka_unit_test(parameters_that_the_exporter_lost_are_listed),
      cmocka_unit_test(the_error_of_a_fixed_batch_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

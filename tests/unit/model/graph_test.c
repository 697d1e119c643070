/* Graphs of ONNX files: what is read and inferred, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/op.h"
#include "tests/support/model/graph_build.h"
#include "tests/support/model/onnx_build.h"

/* Loads, binds a batch of 2 and infers; the error must have the code and hold the text. Ends the build. */
static void refuse(struct onnx_build *build, enum err_code code, const char *text) {
  struct err err = ERR_NONE;
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (!graph_load_onnx(bytes, size, &graph, &err)) {
    if (!graph_bind_batch(graph, 2, &err))
      graph_infer(graph, &err);
    graph_free(graph);
  }
  if (err.code != code || !strstr(err.text, text))
    fail_msg("expected %s '%s', got %s '%s'", err_name(code), text, err_name(err.code), err.text);
  onnx_build_fini(build);
}

static void a_file_becomes_values_and_nodes(void **state) {
  struct onnx_build build;
  struct graph *graph;
  struct err err = ERR_NONE;
  char text[64];
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  onnx_build_input(&build, "w1", DIMS(3, 4)); /* as files before IR version 4 do */
  graph = read_graph(&build);
  assert_int_equal(graph->opset, 13);
  assert_int_equal(graph->n_inputs, 1);
  assert_int_equal(graph->n_nodes, 3);
  assert_int_equal(graph->values[graph_find(graph, "w1")].kind, VALUE_INITIALIZER);
  assert_int_equal(graph->values[graph->inputs[0]].kind, VALUE_INPUT);
  assert_string_equal(graph->nodes[0]->name, "fc1");
  assert_string_equal(graph->nodes[1]->name, "Relu_1");
  assert_int_equal(graph_bind_batch(graph, 5, &err), 0);
  assert_int_equal(graph_infer(graph, &err), 0);
  assert_string_equal(shape_text(&graph->values[graph->outputs[0]].shape, text, sizeof text), "[5,2]");
  assert_int_equal(graph->values[graph->outputs[0]].producer, 2);
  graph_free(graph);
  onnx_build_fini(&build);
}

static void every_way_to_store_data_is_read(void **state) {
  struct onnx_build build;
  struct graph *graph;
  Onnx__TensorProto *t;
  float floats[] = {1.5f, -2};
  int64_t longs[] = {7, -8};
  int32_t ints[] = {0, 200};
  const int types[] = {ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, ONNX__TENSOR_PROTO__DATA_TYPE__INT32,
                       ONNX__TENSOR_PROTO__DATA_TYPE__BOOL};
  const char *names[] = {"u8", "i32", "bool"};
  (void)state;
  onnx_build_mlp(&build, 1, 1, 1);
  onnx_build_add(&build, t = onnx_build_tensor(&build, "f32", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(2)));
  t->float_data = floats;
  t->n_float_data = 2;
  onnx_build_add(&build, t = onnx_build_tensor(&build, "i64", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(2)));
  t->int64_data = longs;
  t->n_int64_data = 2;
  for (int i = 0; i < 3; i++) {
    onnx_build_add(&build, t = onnx_build_tensor(&build, names[i], types[i], DIMS(2)));
    t->int32_data = ints;
    t->n_int32_data = 2;
  }
  graph = read_graph(&build);
  assert_memory_equal(graph->values[graph_find(graph, "f32")].data, floats, sizeof floats);
  assert_memory_equal(graph->values[graph_find(graph, "i64")].data, longs, sizeof longs);
  assert_memory_equal(graph->values[graph_find(graph, "i32")].data, ints, sizeof ints);
  assert_memory_equal(graph->values[graph_find(graph, "u8")].data, ((uint8_t[]){0, 200}), 2);
  assert_memory_equal(graph->values[graph_find(graph, "bool")].data, ((uint8_t[]){0, 1}), 2);
  graph_free(graph);
  onnx_build_fini(&build);
}

static void a_file_cut_short_anywhere_is_refused(void **state) {
  struct onnx_build build;
  size_t size;
  const char *bytes;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  bytes = onnx_build_pack(&build, &size);
  for (size_t cut = 0; cut < size; cut++) {
    struct err err = ERR_NONE;
    struct graph *graph;
    void *part = mem_new(cut);
    memcpy(part, bytes, cut);
    assert_int_equal(graph_load_onnx(part, cut, &graph, &err), ERR_INVALID);
    assert_null(graph);
    assert_true(strlen(err.text) > 10);
    free(part);
  }
  onnx_build_fini(&build);
}

static void flipped_bytes_never_crash_the_reader(void **state) {
  struct onnx_build build;
  size_t size;
  const void *bytes;
  int refused = 0;
  (void)state;
  onnx_build_mlp(&build, 2, 3, 2);
  onnx_build_int(&build, build.graph.node[0], "transB", 0);
  bytes = onnx_build_pack(&build, &size);
  for (uint64_t round = 0; round < 4000; round++) {
    struct err err = ERR_NONE;
    struct graph *graph;
    unsigned char *copy = mem_new(size);
    memcpy(copy, bytes, size);
    for (uint64_t flip = 0; flip <= round % 3; flip++)
      copy[random_bits(round, 2 * flip) % size] = (unsigned char)random_bits(round, 2 * flip + 1);
    if (!graph_load_onnx(copy, size, &graph, &err)) {
      if (!graph_bind_batch(graph, 2, &err))
        graph_infer(graph, &err);
      graph_free(graph);
    }
    refused += err.code != ERR_OK;
    free(copy);
  }
  assert_true(refused > 400);
  onnx_build_fini(&build);
}

/* Model { graph { node { attribute { g { node { ... } } } } } }, made from the inside out. */
static void messages_nested_too_deep_are_refused(void **state) {
  static const unsigned char tags[] = {6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2};
  enum { DEPTH = 90000, SIZE = DEPTH * 8 };
  unsigned char *bytes = mem_new(SIZE), *at = bytes + SIZE;
  struct err err = ERR_NONE;
  struct graph *graph;
  (void)state;
  for (int level = 0; level <= DEPTH; level++) {
    size_t length = (size_t)(bytes + SIZE - at);
    unsigned char varint[10];
    int n = 0;
    do
      varint[n++] = (unsigned char)((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
    while (length >>= 7);
    at -= n;
    memcpy(at, varint, (size_t)n);
    *--at = level == DEPTH ? 7 << 3 | 2 : tags[level % 3];
  }
  assert_int_equal(graph_load_onnx(at, (size_t)(bytes + SIZE - at), &graph, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "nested"));
  free(bytes);
}

static void all_unsupported_nodes_are_named_at_once(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  onnx_build_node(&build, "TfIdfVectorizer", "tf_idf", "y", "a");
  onnx_build_node(&build, "Gelu", NULL, "y", "b")->domain = (char *)"com.microsoft";
  onnx_build_node(&build, "ReluGrad", "ours", "y,y", "c");
  onnx_build_attr(&build, onnx_build_node(&build, "Loop", "loop", "y", "d"), "body",
                  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
  refuse(&build, ERR_UNSUPPORTED,
         "4 nodes use operators that are not supported: 'tf_idf' (TfIdfVectorizer), 'Gelu_4' "
         "(com.microsoft.Gelu), 'ours' (ReluGrad), 'loop' (Loop)");
}

static void types_that_are_not_supported_are_named(void **state) {
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  tensor = onnx_build_tensor(&build, "double", ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, DIMS(1));
  onnx_build_raw(&build, tensor, "abcdefgh", 8);
  onnx_build_add(&build, tensor);
  onnx_build_node(&build, "Loop", "l", "y", "a");
  refuse(&build, ERR_UNSUPPORTED,
         "1 node uses an operator that is not supported: 'l' (Loop); 1 tensor has a type that is not "
         "supported: initializer 'double' (f64)");
}

static void opsets_out_of_range_are_refused(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  build.opset.version = 6;
  refuse(&build, ERR_UNSUPPORTED, "opset 6, supported are 7 to 23");
  onnx_build_mlp(&build, 3, 4, 2);
  build.opset.version = 99;
  refuse(&build, ERR_UNSUPPORTED, "opset 99");
  onnx_build_mlp(&build, 3, 4, 2);
  build.model.n_opset_import = 0;
  refuse(&build, ERR_INVALID, "names no ONNX opset");
}

static void names_must_resolve(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.node[1]->input[0] = (char *)"nowhere";
  refuse(&build, ERR_INVALID, "node 'Relu_1' (Relu): reads 'nowhere', which nothing produces");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.node[1]->output[0] = (char *)"h";
  refuse(&build, ERR_INVALID, "two values are named 'h'");
  onnx_build_mlp(&build, 3, 4, 2);
  onnx_build_weight(&build, "w1", DIMS(1));
  refuse(&build, ERR_INVALID, "two values are named 'w1'");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.output[0]->name = (char *)"z";
  refuse(&build, ERR_INVALID, "output 'z' is produced by nothing");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.node[1]->n_input = 0;
  refuse(&build, ERR_INVALID, "node 'Relu_1' (Relu): has 0 inputs, it takes 1 to 1");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.node[0]->input[1] = (char *)"";
  refuse(&build, ERR_INVALID, "node 'fc1' (Gemm): its input 1 is missing");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.node[1]->name = (char *)"two\nlines";
  refuse(&build, ERR_INVALID, "control character");
}

static void nodes_in_a_cycle_are_named(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3));
  onnx_build_node(&build, "Relu", "first", "x", "a");
  onnx_build_node(&build, "Add", "second", "a,d", "b");
  onnx_build_node(&build, "Relu", "third", "b", "d");
  onnx_build_output(&build, "d");
  refuse(&build, ERR_INVALID, "2 nodes read each other in a cycle: 'second' (Add), 'third' (Relu)");
}

static void nodes_out_of_order_are_sorted(void **state) {
  struct onnx_build build;
  struct graph *graph;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3));
  onnx_build_node(&build, "Relu", "last", "b", "c");
  onnx_build_node(&build, "Relu", "first", "x", "a");
  onnx_build_node(&build, "Relu", "middle", "a", "b");
  onnx_build_output(&build, "c");
  graph = read_graph(&build);
  assert_string_equal(graph->nodes[0]->name, "first");
  assert_string_equal(graph->nodes[1]->name, "middle");
  assert_string_equal(graph->nodes[2]->name, "last");
  for (int n = 0; n < 3; n++) {
    assert_int_equal(graph->nodes[n]->index, n);
    assert_int_equal(node_output(graph, graph->nodes[n], 0)->producer, n);
  }
  graph_free(graph);
  onnx_build_fini(&build);
}

static void data_must_fit_its_shape(void **state) {
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.initializer[0]->raw_data.len -= 4;
  refuse(&build, ERR_INVALID, "initializer 'w1' of shape [3,4] holds 44 bytes of raw data");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.initializer[0]->dims[0] = INT64_MAX;
  refuse(&build, ERR_INVALID, "initializer 'w1' is larger than any tensor may be");
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.initializer[0]->dims[0] = -3;
  refuse(&build, ERR_INVALID, "initializer 'w1' has a dimension of -3");
  onnx_build_mlp(&build, 3, 4, 2);
  tensor = build.graph.initializer[0];
  tensor->has_data_location = 1;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  refuse(&build, ERR_INVALID, "initializer 'w1' keeps its data in another file");
}

static void huge_dimensions_are_refused_not_allocated(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, (int64_t)1 << 40, (int64_t)1 << 40));
  onnx_build_node(&build, "Relu", NULL, "x", "y");
  onnx_build_output(&build, "y");
  refuse(&build, ERR_INVALID, "input 'x'");
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 1 << 20, 1));
  onnx_build_input(&build, "z", DIMS(-1, 1, 1 << 20));
  onnx_build_node(&build, "Add", "wide", "x,z", "y");
  onnx_build_output(&build, "y");
  refuse(&build, ERR_INVALID, "node 'wide' (Add): result 'y'");
}

static void only_the_batch_may_be_open(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3, -1));
  onnx_build_node(&build, "Relu", NULL, "x", "y");
  onnx_build_output(&build, "y");
  refuse(&build, ERR_INVALID, "input 'x' of shape [2,3,?]");
}

static void a_batch_fixed_in_the_file_is_overridden(void **state) {
  struct onnx_build build;
  struct graph *graph;
  struct err err = ERR_NONE;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  build.graph.input[0]->type->tensor_type->shape->dim[0]->value_case =
      ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
  build.graph.input[0]->type->tensor_type->shape->dim[0]->dim_value = 64;
  graph = read_graph(&build);
  assert_int_equal(graph_bind_batch(graph, 7, &err), 0);
  assert_int_equal(graph_infer(graph, &err), 0);
  assert_int_equal(graph->values[graph->outputs[0]].shape.dim[0], 7);
  graph_free(graph);
  onnx_build_fini(&build);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_becomes_values_and_nodes),
      cmocka_unit_test(every_way_to_store_data_is_read),
      cmocka_unit_test(a_file_cut_short_anywhere_is_refused),
      cmocka_unit_test(flipped_bytes_never_crash_the_reader),
      cmocka_unit_test(messages_nested_too_deep_are_refused),
      cmocka_unit_test(all_unsupported_nodes_are_named_at_once),
      cmocka_unit_test(types_that_are_not_supported_are_named),
      cmocka_unit_test(opsets_out_of_range_are_refused),
      cmocka_unit_test(names_must_resolve),
      cmocka_unit_test(nodes_in_a_cycle_are_named),
      cmocka_unit_test(nodes_out_of_order_are_sorted),
      cmocka_unit_test(data_must_fit_its_shape),
      cmocka_unit_test(huge_dimensions_are_refused_not_allocated),
      cmocka_unit_test(only_the_batch_may_be_open),
      cmocka_unit_test(a_batch_fixed_in_the_file_is_overridden),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

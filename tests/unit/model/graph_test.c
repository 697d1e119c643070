/* Graphs: reading ONNX, inference, folding, pruning, differentiation, and the memory plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/graph/listing.h"
#include "model/graph/memory_plan.h"
#include "model/graph/op.h"
#include "tests/support/graph_run.h"
#include "tests/support/onnx_build.h"

static struct graph *load(struct onnx_build *build) {
  struct err err = ERR_NONE;
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (graph_load_onnx(bytes, size, &graph, &err))
    fail_msg("%s", err.text);
  return graph;
}

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
  graph = load(&build);
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
  graph = load(&build);
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
  graph = load(&build);
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
  graph = load(&build);
  assert_int_equal(graph_bind_batch(graph, 7, &err), 0);
  assert_int_equal(graph_infer(graph, &err), 0);
  assert_int_equal(graph->values[graph->outputs[0]].shape.dim[0], 7);
  graph_free(graph);
  onnx_build_fini(&build);
}

static void known_data_is_folded_and_weights_are_not(void **state) {
  struct onnx_build build;
  struct graph *graph;
  struct err err = ERR_NONE;
  Onnx__NodeProto *node;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3));
  onnx_build_weight(&build, "w", DIMS(3));
  node = onnx_build_node(&build, "Constant", "two", "", "c2");
  onnx_build_float(&build, node, "value_float", 2);
  onnx_build_node(&build, "Mul", "four", "c2,c2", "c4");
  onnx_build_node(&build, "Mul", "scaled", "w,c4", "w4");
  onnx_build_node(&build, "Add", "sum", "x,w4", "y");
  onnx_build_output(&build, "y");
  graph = load(&build);
  assert_int_equal(graph_bind_batch(graph, 2, &err), 0);
  assert_int_equal(graph_infer(graph, &err), 0);
  assert_int_equal(graph->n_nodes, 2);
  assert_string_equal(graph->nodes[0]->name, "scaled");
  assert_int_equal(graph->values[graph_find(graph, "c4")].kind, VALUE_CONSTANT);
  assert_true(*(const float *)graph->values[graph_find(graph, "c4")].data == 4);
  assert_int_equal(graph->values[graph_find(graph, "y")].producer, 1);
  graph_free(graph);
  onnx_build_fini(&build);
}

static int add_input(struct graph *graph, const char *name, int64_t n) {
  struct shape shape = {.rank = 1, .dim = {n}};
  return graph_add_input(graph, name, DTYPE_F32, &shape);
}

static int add_node(struct graph *graph, const char *op, int a, int b) {
  return graph_add_node(graph, op, (int[]){a, b}, b < 0 ? 1 : 2, 1, NULL, 0)->outputs[0];
}

static void pruning_keeps_what_the_roots_need(void **state) {
  struct graph *graph = graph_new();
  int unused = add_input(graph, "unused", 2), x = add_input(graph, "x", 2), a, dead, y, *map;
  (void)state;
  a = add_node(graph, "Relu", x, -1);
  dead = add_node(graph, "Add", a, unused);
  y = add_node(graph, "Mul", a, a);
  map = graph_prune(graph, &y, 1);
  assert_int_equal(map[unused], -1);
  assert_int_equal(map[dead], -1);
  assert_int_equal(map[x], 0);
  assert_int_equal(graph->n_inputs, 1);
  assert_int_equal(graph->inputs[0], 0);
  assert_int_equal(graph->n_values, 3);
  assert_int_equal(graph->n_nodes, 2);
  assert_int_equal(graph->nodes[1]->inputs[0], map[a]);
  assert_int_equal(graph->values[map[y]].producer, 1);
  assert_int_equal(graph->nodes[1]->index, 1);
  free(map);
  graph_free(graph);
}

static void a_clone_changes_by_itself(void **state) {
  struct graph *graph = graph_new(), *copy;
  int x = add_input(graph, "x", 2), y = add_node(graph, "Relu", x, -1);
  (void)state;
  copy = graph_clone(graph);
  add_node(copy, "Relu", y, -1);
  copy->nodes[0]->inputs[0] = y;
  add_input(copy, "more", 1);
  assert_int_equal(graph->n_nodes, 1);
  assert_int_equal(graph->n_inputs, 1);
  assert_int_equal(graph->nodes[0]->inputs[0], x);
  assert_int_equal(graph_find(graph, "more"), -1);
  graph_free(copy);
  graph_free(graph);
}

/* f = sum of ((w * w) + w) * x: df/dw = (2 w + 1) x. */
static void gradients_of_a_shared_value_are_added(void **state) {
  struct graph *graph = graph_new();
  struct arena arena = {0};
  struct err err = ERR_NONE;
  int w = add_input(graph, "w", 2), x = add_input(graph, "x", 2), f, seed, grads[64];
  float w_data[] = {3, -2}, x_data[] = {10, 100}, ones[] = {1, 1};
  void *data[64] = {NULL};
  bool wanted[64] = {false};
  (void)state;
  f = add_node(graph, "Mul", add_node(graph, "Add", add_node(graph, "Mul", w, w), w), x);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(autodiff_run(graph, &f, &seed, 1, wanted, grads, &err), 0);
  assert_int_equal(grads[x], -1);
  assert_true(grads[w] >= 0);
  data[w] = w_data;
  data[x] = x_data;
  data[seed] = ones;
  assert_true(graph->n_values <= 64);
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  assert_true(((float *)data[grads[w]])[0] == 70);
  assert_true(((float *)data[grads[w]])[1] == -300);
  arena_fini(&arena);
  graph_free(graph);
}

static void backward_nodes_follow_in_backward_order(void **state) {
  struct graph *graph = graph_new();
  struct err err = ERR_NONE;
  int x = add_input(graph, "x", 2), w = add_input(graph, "w", 2), hidden, f, seed, grads[64], last;
  bool wanted[64] = {false};
  (void)state;
  hidden = add_node(graph, "Tanh", add_node(graph, "Relu", x, -1), -1);
  f = add_node(graph, "Relu", add_node(graph, "Mul", hidden, w), -1);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(graph->n_nodes, 4);
  assert_int_equal(autodiff_run(graph, &f, &seed, 1, wanted, grads, &err), 0);
  assert_true(graph->n_nodes > 4);
  last = 4;
  for (int n = 4; n < graph->n_nodes; n++) {
    assert_true(graph->nodes[n]->forward <= last);
    last = graph->nodes[n]->forward;
    assert_true(last >= 2); /* nothing wanted lies behind Mul: no gradient of Tanh or Relu */
  }
  graph_free(graph);
}

static void all_nodes_without_a_gradient_are_named(void **state) {
  struct graph *graph = graph_new();
  struct err err = ERR_NONE;
  int w = add_input(graph, "w", 2), f, seed, grads[64];
  bool wanted[64] = {false};
  (void)state;
  f = add_node(graph, "ReluGrad", add_node(graph, "Relu", add_node(graph, "ReluGrad", w, w), -1), w);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(autodiff_run(graph, &f, &seed, 1, wanted, grads, &err), ERR_UNSUPPORTED);
  assert_non_null(strstr(err.text, "2 nodes"));
  assert_non_null(strstr(err.text, "'ReluGrad_0' (ReluGrad)"));
  assert_non_null(strstr(err.text, "'ReluGrad_2' (ReluGrad)"));
  graph_free(graph);
}

/* n random spans over `steps` steps are planned; those that live together must not overlap. */
static void check_plan(uint64_t round, int n, int steps) {
  struct memory_span *spans = mem_new((size_t)n * sizeof *spans);
  size_t size, sum = 0;
  for (int i = 0; i < n; i++) {
    spans[i].size_bytes = random_bits(round, (uint64_t)(4 * i + 1)) % 1000;
    spans[i].first = (int)(random_bits(round, (uint64_t)(4 * i + 2)) % (unsigned)steps);
    spans[i].last = spans[i].first + (int)(random_bits(round, (uint64_t)(4 * i + 3)) % 6);
    sum += (spans[i].size_bytes + 63) / 64 * 64;
  }
  size = memory_plan(spans, n);
  assert_true(size <= sum);
  for (int i = 0; i < n; i++) {
    assert_int_equal(spans[i].offset % 64, 0);
    assert_true(spans[i].offset + spans[i].size_bytes <= size);
    for (int j = 0; j < i; j++)
      if (spans[i].first <= spans[j].last && spans[j].first <= spans[i].last)
        assert_true(spans[i].offset + spans[i].size_bytes <= spans[j].offset ||
                    spans[j].offset + spans[j].size_bytes <= spans[i].offset || spans[i].size_bytes == 0 ||
                    spans[j].size_bytes == 0);
  }
  free(spans);
}

static void memory_of_tensors_that_live_together_never_overlaps(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 200; round++)
    check_plan(round, 1 + (int)(random_bits(round, 0) % 60), 20);
  for (uint64_t round = 0; round < 5; round++) /* planned in another way */
    check_plan(round, 3000, 400);
}

static void a_plan_of_many_tensors_is_made_fast_and_reuses_memory(void **state) {
  enum { N = 100000 };
  struct memory_span *spans = mem_new(N * sizeof *spans);
  (void)state;
  for (int i = 0; i < N; i++) /* as of a chain, forward and backward */
    spans[i] = (struct memory_span){.size_bytes = 64, .first = i, .last = i < N / 2 ? N - 1 - i : i + 1};
  assert_true(memory_plan(spans, N) <= (N / 2 + 2) * 64);
  free(spans);
}

static void memory_is_reused_after_a_tensor_died(void **state) {
  struct memory_span spans[] = {{1000, 0, 1, 0}, {1000, 1, 2, 0}, {900, 2, 3, 0}, {10, 0, 3, 0}};
  (void)state;
  assert_int_equal(memory_plan(spans, 4), 2 * 1024 + 64);
  assert_int_equal(spans[0].offset, 0);
  assert_int_equal(spans[1].offset, 1024);
  assert_int_equal(spans[2].offset, 0);
  assert_int_equal(memory_plan(NULL, 0), 0);
}

static void a_long_listing_ends_with_a_count(void **state) {
  struct listing listing = {0};
  (void)state;
  for (int i = 0; i < 500; i++)
    listing_add(&listing, "'node_%d' (If)", i);
  assert_int_equal(listing.count, 500);
  assert_true(strlen(listing_text(&listing)) < sizeof listing.text);
  assert_non_null(strstr(listing.text, "'node_0' (If), 'node_1' (If), "));
  assert_non_null(strstr(listing.text, " more"));
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
      cmocka_unit_test(known_data_is_folded_and_weights_are_not),
      cmocka_unit_test(pruning_keeps_what_the_roots_need),
      cmocka_unit_test(a_clone_changes_by_itself),
      cmocka_unit_test(gradients_of_a_shared_value_are_added),
      cmocka_unit_test(backward_nodes_follow_in_backward_order),
      cmocka_unit_test(all_nodes_without_a_gradient_are_named),
      cmocka_unit_test(memory_of_tensors_that_live_together_never_overlaps),
      cmocka_unit_test(a_plan_of_many_tensors_is_made_fast_and_reuses_memory),
      cmocka_unit_test(memory_is_reused_after_a_tensor_died),
      cmocka_unit_test(a_long_listing_ends_with_a_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

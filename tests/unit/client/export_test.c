/* ONNX in inference form: weights in their type, no dropout, no draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/files/export.h"
#include "common/agree/float_setting.h"
#include "common/base/half.h"
#include "model/model.h"
#include "model/onnx/model_file.h"
#include "tests/support/model/onnx_build.h"

static char path[] = "/tmp/weir-test-XXXXXX";

/* Weights that are all the same, and how many were read. */
struct same_weights {
  float weight;
  uint64_t n_read;
};

static int same_read(void *user, float *to, uint64_t elems, struct err *err) {
  struct same_weights *same = user;
  (void)err;
  for (uint64_t i = 0; i < elems; i++)
    to[i] = same->weight;
  same->n_read += elems;
  return 0;
}

static int same_end(void *user, struct err *err) {
  (void)user;
  (void)err;
  return 0;
}

/* Exports the model with all weights at `weight`; ends the build. Freed by the caller. */
static Onnx__ModelProto *export_with(struct onnx_build *build, float weight) {
  struct err err = ERR_NONE;
  struct model *model;
  Onnx__ModelProto *exported;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  void *written;
  struct same_weights same = {.weight = weight};
  struct export_source source = {.model = {.onnx = bytes, .onnx_size = size},
                                 .weights = {.read = same_read, .end = same_end, .user = &same}};
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = 2}, &model, &err))
    fail_msg("%s", err.text);
  if (export_onnx(&source, path, &err) || model_file_read(path, &written, &size, &err))
    fail_msg("%s", err.text);
  assert_int_equal(same.n_read, model->param_elems + model->row_elems - METRICS);
  exported = onnx__model_proto__unpack(NULL, size, written);
  assert_non_null(exported);
  free(written);
  model_close(model);
  onnx_build_fini(build);
  return exported;
}

static int count(const Onnx__GraphProto *graph, const char *op) {
  int n = 0;
  for (size_t i = 0; i < graph->n_node; i++)
    n += strcmp(graph->node[i]->op_type, op) == 0;
  return n;
}

static const Onnx__TensorProto *find_initializer(const Onnx__GraphProto *graph, const char *name) {
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (strcmp(graph->initializer[i]->name, name) == 0)
      return graph->initializer[i];
  return NULL;
}

/* An f16 initializer of zeros, as raw data or in int32_data. */
static void add_half(struct onnx_build *build, const char *name, bool is_raw) {
  Onnx__TensorProto *tensor =
      onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, DIMS(2, 2));
  if (is_raw) {
    onnx_build_raw(build, tensor, "\0\0\0\0\0\0\0", 8);
  } else {
    tensor->n_int32_data = 4;
    tensor->int32_data = arena_new(&build->arena, 4 * sizeof *tensor->int32_data);
  }
  onnx_build_add(build, tensor);
}

static void sixteen_bit_weights_are_rounded_to_their_type(void **state) {
  (void)state;
  for (int is_raw = 0; is_raw < 2; is_raw++) {
    struct onnx_build build;
    Onnx__ModelProto *exported;
    const Onnx__TensorProto *tensor;
    uint16_t bits;
    onnx_build_init(&build, 17);
    onnx_build_input(&build, "x", DIMS(-1, 2));
    add_half(&build, "w", is_raw);
    onnx_build_node(&build, "MatMul", NULL, "x,w", "y");
    onnx_build_output(&build, "y");
    exported = export_with(&build, 0.1f);
    tensor = find_initializer(exported->graph, "w");
    assert_int_equal(tensor->data_type, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16);
    assert_int_equal(tensor->raw_data.len, 8);
    assert_int_equal(tensor->n_int32_data, 0);
    memcpy(&bits, tensor->raw_data.data + 6, sizeof bits);
    assert_int_equal(bits, f16_of_f32(0.1f));
    onnx__model_proto__free_unpacked(exported, NULL);
  }
}

/* h -> h * (draw / p), where the draw is `last` of r < p, or a Bernoulli. */
static void build_draw(struct onnx_build *build, const char *last) {
  onnx_build_init(build, 17);
  onnx_build_input(build, "x", DIMS(-1, 2));
  onnx_build_weight(build, "w", DIMS(2, 2));
  onnx_build_node(build, "MatMul", NULL, "x,w", "h");
  onnx_build_float(build, onnx_build_node(build, "Constant", NULL, "", "p"), "value_float", 0.75f);
  onnx_build_node(build, "RandomUniformLike", NULL, "h", "r");
  onnx_build_node(build, "Less", NULL, "r,p", "b");
  if (strcmp(last, "Cast") == 0)
    onnx_build_int(build, onnx_build_node(build, "Cast", NULL, "b", "d"), "to", 1);
  else
    onnx_build_node(build, "CastLike", NULL, "b,h", "d");
  onnx_build_node(build, "Div", NULL, "d,p", "s");
  onnx_build_node(build, "Mul", NULL, "h,s", "m");
  onnx_build_node(build, "Dropout", NULL, "m", "y");
  onnx_build_output(build, "y");
}

static void draws_and_dropout_are_gone(void **state) {
  static const char *const lasts[] = {"Cast", "CastLike"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct onnx_build build;
    Onnx__ModelProto *exported;
    const Onnx__GraphProto *graph;
    build_draw(&build, lasts[i]);
    exported = export_with(&build, 1);
    graph = exported->graph;
    assert_int_equal(count(graph, "RandomUniformLike") + count(graph, "Less") + count(graph, lasts[i]), 0);
    assert_int_equal(count(graph, "Dropout"), 0);
    assert_int_equal(count(graph, "Constant"), 1);
    assert_int_equal(graph->n_node, 5);
    assert_string_equal(graph->node[2]->op_type, "Div");
    assert_string_equal(graph->node[2]->input[0], "p");
    onnx__model_proto__free_unpacked(exported, NULL);
  }
}

static void draws_of_another_range_stay(void **state) {
  struct onnx_build build;
  Onnx__ModelProto *exported;
  (void)state;
  build_draw(&build, "Cast");
  onnx_build_float(&build, build.graph.node[2], "high", 2);
  exported = export_with(&build, 1);
  assert_int_equal(count(exported->graph, "RandomUniformLike"), 1);
  onnx__model_proto__free_unpacked(exported, NULL);
}

static void what_only_a_branch_reads_stays(void **state) {
  struct onnx_build build;
  Onnx__GraphProto branches[2] = {ONNX__GRAPH_PROTO__INIT, ONNX__GRAPH_PROTO__INIT};
  Onnx__NodeProto *node, *inner[2];
  Onnx__ValueInfoProto *outputs[2];
  Onnx__ModelProto *exported;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 2));
  onnx_build_weight(&build, "w", DIMS(2, 2));
  onnx_build_weight(&build, "v", DIMS(2, 2));
  onnx_build_node(&build, "MatMul", NULL, "x,w", "h");
  onnx_build_node(&build, "Dropout", NULL, "h", "d");
  for (int i = 0; i < 2; i++) {
    inner[i] = onnx_build_node(&build, i ? "Relu" : "MatMul", NULL, i ? "d" : "d,v", i ? "e" : "t");
    outputs[i] = onnx_build_info(&build, i ? "e" : "t", 1, NULL, 0);
    branches[i].n_node = branches[i].n_output = 1;
    branches[i].node = &inner[i];
    branches[i].output = &outputs[i];
  }
  build.graph.n_node = 2;
  onnx_build_int(&build, onnx_build_node(&build, "Constant", NULL, "", "one"), "value_int", 1);
  onnx_build_node(&build, "Equal", NULL, "one,one", "c");
  node = onnx_build_node(&build, "If", NULL, "c", "y");
  for (int i = 0; i < 2; i++)
    onnx_build_attr(&build, node, i ? "else_branch" : "then_branch",
                    ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)
        ->g = &branches[i];
  onnx_build_output(&build, "y");
  exported = export_with(&build, 1);
  assert_non_null(find_initializer(exported->graph, "v"));
  assert_int_equal(count(exported->graph, "Dropout") + count(exported->graph, "Identity"), 0);
  node = exported->graph->node[exported->graph->n_node - 1];
  assert_string_equal(node->attribute[0]->g->node[0]->input[0], "h"); /* what the dropout read */
  onnx__model_proto__free_unpacked(exported, NULL);
}

static void functions_are_in_inference_form_too(void **state) {
  Onnx__FunctionProto function = ONNX__FUNCTION_PROTO__INIT, *functions[] = {&function};
  struct onnx_build build;
  Onnx__ModelProto *exported;
  Onnx__NodeProto *node;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 2, 3));
  onnx_build_weight(&build, "scale", DIMS(2));
  onnx_build_weight(&build, "shift", DIMS(2));
  onnx_build_weight(&build, "mean", DIMS(2));
  onnx_build_weight(&build, "var", DIMS(2));
  node = onnx_build_node(&build, "BatchNormalization", NULL, "a,b,c,d,e", "n,m,v");
  onnx_build_int(&build, node, "training_mode", 1);
  onnx_build_node(&build, "Dropout", NULL, "n", "o,mask");
  function.name = (char *)"f";
  function.domain = (char *)"local";
  function.n_input = onnx_build_names(&build, "a,b,c,d,e", &function.input);
  function.n_output = onnx_build_names(&build, "o", &function.output);
  function.n_node = 2;
  function.node = arena_copy(&build.arena, build.graph.node, 2 * sizeof(void *));
  build.model.functions = functions;
  build.model.n_functions = 1;
  build.graph.n_node = 0;
  onnx_build_node(&build, "f", NULL, "x,scale,shift,mean,var", "z")->domain = (char *)"local";
  onnx_build_node(&build, "Flatten", NULL, "z", "y");
  onnx_build_output(&build, "y");
  exported = export_with(&build, 1);
  node = exported->functions[0]->node[0];
  assert_int_equal(node->n_attribute, 0);
  assert_int_equal(node->n_output, 1);
  node = exported->functions[0]->node[1];
  assert_string_equal(node->op_type, "Identity");
  assert_int_equal(node->n_output, 1);
  onnx__model_proto__free_unpacked(exported, NULL);
}

static int setup(void **state) {
  int file = mkstemp(path);
  (void)state;
  return file < 0 || close(file);
}

static int teardown(void **state) {
  (void)state;
  return unlink(path);
}

/* As a model above 2 GiB is exported: what is large lies beside the file, the way ONNX has it. */
static void what_is_too_large_for_one_file_lies_beside_it(void **state) {
  struct onnx_build build;
  struct same_weights same = {.weight = 0.25f};
  struct export_source source = {.weights = {.read = same_read, .end = same_end, .user = &same},
                                 .bytes_max = 4096};
  char data[sizeof path + 8];
  struct model_file file;
  Onnx__ModelProto *exported;
  const Onnx__TensorProto *tensor;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  (void)state;
  onnx_build_mlp(&build, 300, 300, 2);
  source.model.onnx = onnx_build_pack(&build, &source.model.onnx_size);
  snprintf(data, sizeof data, "%s.data", path);
  if (export_onnx(&source, path, &err))
    fail_msg("%s", err.text);
  assert_int_equal(model_file_read_bytes(path, &bytes, &size, &err), 0);
  exported = onnx__model_proto__unpack(NULL, size, bytes);
  free(bytes);
  tensor = find_initializer(exported->graph, "w1");
  assert_int_equal(tensor->data_location, ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL);
  assert_int_equal(tensor->n_external_data, 3);
  assert_string_equal(tensor->external_data[0]->key, "location");
  assert_string_equal(tensor->external_data[0]->value, strrchr(data, '/') + 1);
  assert_int_equal(find_initializer(exported->graph, "b2")->raw_data.len, 2 * sizeof(float));
  onnx__model_proto__free_unpacked(exported, NULL);
  assert_int_equal(model_file_open(path, &file, &err), 0); /* it can be submitted again */
  assert_non_null(file.external);
  model_file_close(&file);
  assert_int_equal(model_file_read(path, &bytes, &size, &err), 0);
  exported = onnx__model_proto__unpack(NULL, size, bytes);
  free(bytes);
  tensor = find_initializer(exported->graph, "w1");
  assert_int_equal(tensor->raw_data.len, 300 * 300 * sizeof(float));
  for (size_t i = 0; i < 300 * 300; i++)
    assert_true(((const float *)(const void *)tensor->raw_data.data)[i] == 0.25f);
  onnx__model_proto__free_unpacked(exported, NULL);
  unlink(data);
  onnx_build_fini(&build);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_bit_weights_are_rounded_to_their_type),
      cmocka_unit_test(what_is_too_large_for_one_file_lies_beside_it),
      cmocka_unit_test(draws_and_dropout_are_gone),
      cmocka_unit_test(draws_of_another_range_stay),
      cmocka_unit_test(what_only_a_branch_reads_stays),
      cmocka_unit_test(functions_are_in_inference_form_too),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

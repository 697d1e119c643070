#include "tests/support/model/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/graph/op.h"

void spec_init(struct test_spec *spec) {
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

void spec_freeze(struct test_spec *spec, const char *pattern) {
  spec->frozen[spec->model.n_frozen++] = (char *)pattern;
}

void spec_map(struct test_spec *spec, const char *input, const char *column) {
  spec->entries[spec->model.n_inputs].key = (char *)input;
  spec->entries[spec->model.n_inputs++].value = (char *)column;
}

struct model *open_model(struct onnx_build *build, const struct test_spec *spec) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (model_open(
          &(struct model_source){
              .onnx = bytes, .size_bytes = size, .spec = spec ? &spec->run : NULL, .samples = MODEL_SAMPLES},
          &model, &err))
    fail_msg("%s", err.text);
  return model;
}

void refuse_model(struct onnx_build *build, const struct test_spec *spec, enum err_code code,
                  const char *text) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  int returned = model_open(
      &(struct model_source){
          .onnx = bytes, .size_bytes = size, .spec = spec ? &spec->run : NULL, .samples = MODEL_SAMPLES},
      &model, &err);
  assert_int_equal(returned, err.code);
  assert_null(model);
  if (err.code != code || !strstr(err.text, text))
    fail_msg("expected %s '%s', got %s '%s'", err_name(code), text, err_name(err.code), err.text);
  onnx_build_fini(build);
}

int count_ops(const struct graph *graph, const char *op) {
  int count = 0;
  for (int n = 0; n < graph->n_nodes; n++)
    count += strcmp(graph->nodes[n]->op->name, op) == 0;
  return count;
}

void build_batch_norm(struct onnx_build *build, int opset, bool trains) {
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

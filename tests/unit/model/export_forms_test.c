/* What PyTorch's newer exporter writes in its own way: notes on where initializers come from, copies of tied
   weights, sequences of tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/model.h"
#include "model/onnx/model_tie.h"
#include "tests/support/model/onnx_build.h"

enum { SAMPLES = 3 };

/* Notes on a value what the exporter notes: a metadata entry, a field that this ONNX's schema does not know.
 */
static void note_kind(struct onnx_build *build, const char *value, const char *kind) {
  static const char key[] = "pkg.torch.export.graph_signature.InputSpec.kind";
  Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
  Onnx__ValueInfoProto *info = onnx_build_info(build, value, 1, NULL, 0);
  ProtobufCMessageUnknownField *field = arena_new(&build->arena, sizeof *field);
  size_t size;
  entry.key = (char *)key;
  entry.value = (char *)kind;
  size = onnx__string_string_entry_proto__get_packed_size(&entry);
  assert_true(size < 128); /* its length is one byte */
  field->tag = 4;
  field->wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
  field->len = size + 1;
  field->data = arena_new(&build->arena, field->len);
  field->data[0] = (uint8_t)size;
  onnx__string_string_entry_proto__pack(&entry, field->data + 1);
  info->base.unknown_fields = field;
  info->base.n_unknown_fields = 1;
  if (!build->graph.value_info)
    build->graph.value_info = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
  build->graph.value_info[build->graph.n_value_info++] = info;
}

static struct model *open_model(struct onnx_build *build) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err))
    fail_msg("%s", err.text);
  return model;
}

/* "a b": the names of the trained initializers. */
static const char *trained(const struct model *model) {
  static char text[256];
  text[0] = '\0';
  for (int p = 0; p < model->n_params; p++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", p ? " " : "", model->params[p].name);
  return text;
}

/* y = relu((x + buffer) w * val_1) val_2, with a scale and a matrix that the exporter computed. */
static void build_noted(struct onnx_build *build) {
  onnx_build_init(build, 17);
  onnx_build_input(build, "x", DIMS(-1, 4));
  onnx_build_weight(build, "buffer", DIMS(4));
  onnx_build_weight(build, "w", DIMS(4, 4));
  onnx_build_weight(build, "val_1", DIMS(4));
  onnx_build_weight(build, "val_2", DIMS(4, 5));
  onnx_build_node(build, "Add", NULL, "x,buffer", "a");
  onnx_build_node(build, "MatMul", NULL, "a,w", "b");
  onnx_build_node(build, "Mul", NULL, "b,val_1", "c");
  onnx_build_node(build, "MatMul", NULL, "c,val_2", "y");
  onnx_build_output(build, "y");
}

static void parameters_and_matrices_are_trained_where_the_exporter_tells_them_apart(void **state) {
  struct onnx_build build;
  struct model *model;
  (void)state;
  build_noted(&build);
  note_kind(&build, "w", "PARAMETER");
  note_kind(&build, "buffer", "BUFFER");
  model = open_model(&build);
  assert_string_equal(trained(model), "w val_2");
  model_close(model);
  onnx_build_fini(&build);
}

static void every_weight_is_trained_where_nothing_is_noted(void **state) {
  struct onnx_build build;
  struct model *model;
  (void)state;
  build_noted(&build);
  note_kind(&build, "w", "SOMETHING");
  model = open_model(&build);
  assert_string_equal(trained(model), "buffer w val_1 val_2");
  model_close(model);
  onnx_build_fini(&build);
}

static void damaged_notes_are_passed_over(void **state) {
  struct onnx_build build;
  (void)state;
  for (size_t cut = 0; cut < 60; cut++) {
    ProtobufCMessageUnknownField *field;
    build_noted(&build);
    note_kind(&build, "w", "PARAMETER");
    field = build.graph.value_info[0]->base.unknown_fields;
    field->data[cut % field->len] ^= 0x55;
    if (cut % field->len == 0)
      field->data[0] = 0; /* the note is empty, what follows it belongs to the value */
    size_t size;
    const void *bytes = onnx_build_pack(&build, &size);
    struct err err = ERR_NONE;
    struct model *model = NULL;
    model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err);
    model_close(model);
    onnx_build_fini(&build);
  }
}

static void add_matrix(struct onnx_build *build, const char *name, const int64_t *dims, int rank,
                       const float *data) {
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, 1, dims, rank);
  onnx_build_raw(build, tensor, data, (size_t)(dims[0] * dims[1]) * sizeof *data);
  onnx_build_add(build, tensor);
}

/* An embedding and an initializer that is its transpose, or almost. */
static void build_tied(struct onnx_build *build, const char *copy, bool is_exact) {
  float data[3 * 4], transposed[4 * 3];
  for (int r = 0; r < 3; r++)
    for (int c = 0; c < 4; c++)
      transposed[c * 3 + r] = data[r * 4 + c] = (float)(r * 4 + c);
  if (!is_exact)
    transposed[5] += 1;
  onnx_build_init(build, 17);
  add_matrix(build, "embedding.weight", DIMS(3, 4), data);
  add_matrix(build, copy, DIMS(4, 3), transposed);
}

/* model_tie on a model that protobuf-c allocated. */
static Onnx__ModelProto *tied(struct onnx_build *build, bool *was_tied) {
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, bytes);
  assert_non_null(model);
  *was_tied = model_tie(model->graph, NULL);
  return model;
}

static void a_copied_transpose_becomes_a_node_that_reads_the_original(void **state) {
  struct onnx_build build;
  Onnx__ModelProto *model;
  bool was_tied;
  (void)state;
  build_tied(&build, "val_1", true);
  model = tied(&build, &was_tied);
  assert_true(was_tied);
  assert_int_equal(model->graph->n_initializer, 1);
  assert_string_equal(model->graph->initializer[0]->name, "embedding.weight");
  assert_int_equal(model->graph->n_node, 1);
  assert_string_equal(model->graph->node[0]->op_type, "Transpose");
  assert_string_equal(model->graph->node[0]->input[0], "embedding.weight");
  assert_string_equal(model->graph->node[0]->output[0], "val_1");
  onnx__model_proto__free_unpacked(model, NULL);
  onnx_build_fini(&build);
}

static void other_weights_stay_apart(void **state) {
  struct onnx_build build;
  Onnx__ModelProto *model;
  bool was_tied;
  (void)state;
  for (int i = 0; i < 2; i++) {
    build_tied(&build, i ? "head.weight" : "val_1", i);
    model = tied(&build, &was_tied);
    assert_false(was_tied);
    assert_int_equal(model->graph->n_initializer, 2);
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_build_fini(&build);
  }
}

static void add_ints(struct onnx_build *build, const char *name, const int64_t *ints, int64_t n) {
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, 7, &n, n > 1);
  onnx_build_raw(build, tensor, ints, (size_t)n * sizeof *ints);
  onnx_build_add(build, tensor);
}

/* y = x w, split along its 6 columns, the parts [2, 4) and [0, 2) concatenated. */
static void build_sequence(struct onnx_build *build, int64_t n_sizes) {
  static const int64_t numbers[] = {0, 1}, sizes[] = {2, 2, 2};
  onnx_build_init(build, 18);
  onnx_build_input(build, "x", DIMS(-1, 4));
  onnx_build_weight(build, "w", DIMS(4, 6));
  add_ints(build, "zero", &numbers[0], 1);
  add_ints(build, "one", &numbers[1], 1);
  add_ints(build, "sizes", sizes, n_sizes);
  onnx_build_node(build, "MatMul", NULL, "x,w", "h");
  onnx_build_int(build, onnx_build_node(build, "SplitToSequence", NULL, "h,sizes", "parts"), "axis", 1);
  onnx_build_node(build, "SequenceAt", NULL, "parts,one", "b");
  onnx_build_node(build, "SequenceAt", NULL, "parts,zero", "a");
  onnx_build_int(build, onnx_build_node(build, "Concat", NULL, "b,a", "y"), "axis", 1);
  onnx_build_output(build, "y");
}

static void a_sequence_whose_elements_are_taken_by_constants_is_a_split(void **state) {
  struct onnx_build build;
  struct model *model;
  const struct value *output;
  (void)state;
  build_sequence(&build, 3);
  model = open_model(&build);
  output = &model->eval->values[model->eval->nodes[0]->outputs[0]];
  assert_int_equal(output->shape.dim[1], 6);
  model_close(model);
  onnx_build_fini(&build);
}

static void a_sequence_that_is_not_understood_is_refused_by_name(void **state) {
  struct onnx_build build;
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes;
  (void)state;
  build_sequence(&build, 3);
  onnx_build_input(&build, "which", DIMS(1));
  build.graph.node[2]->input[1] = (char *)"which";
  bytes = onnx_build_pack(&build, &size);
  assert_int_equal(
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err),
      ERR_UNSUPPORTED);
  assert_non_null(strstr(err.text, "(SplitToSequence)"));
  assert_non_null(strstr(err.text, "(SequenceAt)"));
  onnx_build_fini(&build);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_and_matrices_are_trained_where_the_exporter_tells_them_apart),
      cmocka_unit_test(every_weight_is_trained_where_nothing_is_noted),
      cmocka_unit_test(damaged_notes_are_passed_over),
      cmocka_unit_test(a_copied_transpose_becomes_a_node_that_reads_the_original),
      cmocka_unit_test(other_weights_stay_apart),
      cmocka_unit_test(a_sequence_whose_elements_are_taken_by_constants_is_a_split),
      cmocka_unit_test(a_sequence_that_is_not_understood_is_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

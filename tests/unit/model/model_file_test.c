/* ONNX files whose tensors lie in files of their own, beside the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/err.h"
#include "model/onnx/model_file.h"
#include "model/onnx/onnx_pieces.h"
#include "tests/support/model/onnx_build.h"

static char folder[] = "/tmp/weir-model-file-XXXXXX";
static const float numbers[6] = {1, 2, 3, 4, 5, 6};

static const char *path_of(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_file(const char *name, const void *bytes, size_t size) {
  FILE *file = fopen(path_of(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

/* entries: "location", "w.bin", "offset", "8", ..., NULL; an empty key is left out. */
static void make_external(struct onnx_build *build, Onnx__TensorProto *tensor, const char *const *entries) {
  tensor->has_raw_data = 0;
  tensor->has_data_location = 1;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  tensor->external_data = arena_new(&build->arena, 8 * sizeof(void *));
  for (; *entries; entries += 2) {
    Onnx__StringStringEntryProto *entry = arena_new(&build->arena, sizeof *entry);
    onnx__string_string_entry_proto__init(entry);
    entry->key = **entries ? (char *)entries[0] : NULL;
    entry->value = **entries ? (char *)entries[1] : NULL;
    tensor->external_data[tensor->n_external_data++] = entry;
  }
}

static void write_model(struct onnx_build *build) {
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  write_file("m.onnx", bytes, size);
}

/* A model with one initializer f32[4], which lies where the entries say. */
static int read_with(const char *const *entries, Onnx__ModelProto **model, struct err *err) {
  struct onnx_build build;
  void *bytes;
  size_t size;
  *model = NULL;
  *err = ERR_NONE;
  onnx_build_init(&build, 17);
  make_external(&build, onnx_build_weight(&build, "w", DIMS(4)), entries);
  write_model(&build);
  onnx_build_fini(&build);
  if (model_file_read(path_of("m.onnx"), &bytes, &size, err))
    return err->code;
  *model = onnx__model_proto__unpack(NULL, size, bytes);
  free(bytes);
  assert_non_null(*model);
  return 0;
}

#define ENTRIES(...)                                                                                         \
  (const char *const[]) {                                                                                    \
    __VA_ARGS__, NULL                                                                                        \
  }

static void expect_refusal(const char *const *entries, const char *text) {
  Onnx__ModelProto *model;
  struct err err;
  assert_int_not_equal(read_with(entries, &model, &err), 0);
  if (!strstr(err.text, text) || !strstr(err.text, "m.onnx"))
    fail_msg("'%s' is not in '%s'", text, err.text);
}

static void external_data_is_read_from_beside_the_model(void **state) {
  Onnx__ModelProto *model;
  struct err err;
  (void)state;
  write_file("w.bin", numbers, sizeof numbers);
  assert_int_equal(read_with(ENTRIES("location", "w.bin", "offset", "8", "length", "16"), &model, &err), 0);
  assert_int_equal(model->graph->initializer[0]->raw_data.len, 16);
  assert_memory_equal(model->graph->initializer[0]->raw_data.data, numbers + 2, 16);
  assert_int_equal(model->graph->initializer[0]->n_external_data, 0);
  assert_int_equal(model->graph->initializer[0]->data_location, ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT);
  onnx__model_proto__free_unpacked(model, NULL);
  assert_int_equal(read_with(ENTRIES("location", "w.bin", "offset", "4"), &model, &err), 0);
  assert_int_equal(model->graph->initializer[0]->raw_data.len, 20);
  onnx__model_proto__free_unpacked(model, NULL);
}

static void a_constant_s_external_data_is_read_too(void **state) {
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  Onnx__ModelProto *model;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  (void)state;
  write_file("w.bin", numbers, sizeof numbers);
  onnx_build_init(&build, 17);
  tensor = onnx_build_tensor(&build, "c", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(6));
  make_external(&build, tensor, ENTRIES("location", "w.bin"));
  onnx_build_attr(&build, onnx_build_node(&build, "Constant", NULL, "", "c"), "value",
                  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)
      ->t = tensor;
  write_model(&build);
  onnx_build_fini(&build);
  assert_int_equal(model_file_read(path_of("m.onnx"), &bytes, &size, &err), 0);
  model = onnx__model_proto__unpack(NULL, size, bytes);
  assert_memory_equal(model->graph->node[0]->attribute[0]->t->raw_data.data, numbers, sizeof numbers);
  onnx__model_proto__free_unpacked(model, NULL);
  free(bytes);
}

static void a_branch_s_and_a_function_s_external_data_are_read_too(void **state) {
  Onnx__FunctionProto function = ONNX__FUNCTION_PROTO__INIT, *functions[] = {&function};
  Onnx__GraphProto branch = ONNX__GRAPH_PROTO__INIT;
  Onnx__NodeProto *constant;
  Onnx__TensorProto *tensor, *tensors[1];
  Onnx__ModelProto *model;
  struct onnx_build build;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  (void)state;
  write_file("w.bin", numbers, sizeof numbers);
  onnx_build_init(&build, 17);
  tensor = tensors[0] = onnx_build_tensor(&build, "c", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(6));
  make_external(&build, tensor, ENTRIES("location", "w.bin"));
  branch.initializer = tensors;
  branch.n_initializer = 1;
  onnx_build_attr(&build, onnx_build_node(&build, "If", NULL, "b", "y"), "then_branch",
                  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)
      ->g = &branch;
  constant = onnx_build_node(&build, "Constant", NULL, "", "c");
  onnx_build_attr(&build, constant, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)->t = tensor;
  function.n_node = 1;
  function.node = &constant;
  build.graph.n_node = 1;
  build.model.functions = functions;
  build.model.n_functions = 1;
  write_model(&build);
  onnx_build_fini(&build);
  assert_int_equal(model_file_read(path_of("m.onnx"), &bytes, &size, &err), 0);
  model = onnx__model_proto__unpack(NULL, size, bytes);
  tensor = model->graph->node[0]->attribute[0]->g->initializer[0];
  assert_memory_equal(tensor->raw_data.data, numbers, sizeof numbers);
  assert_memory_equal(model->functions[0]->node[0]->attribute[0]->t->raw_data.data, numbers, sizeof numbers);
  onnx__model_proto__free_unpacked(model, NULL);
  free(bytes);
}

static void external_data_that_is_not_there_is_named(void **state) {
  (void)state;
  write_file("w.bin", numbers, sizeof numbers);
  expect_refusal(ENTRIES("location", "absent.bin"), "tensor 'w'");
  expect_refusal(ENTRIES("location", "absent.bin"), "absent.bin: No such file");
  expect_refusal(ENTRIES("location", "w.bin", "offset", "16", "length", "16"), "cut short");
  expect_refusal(ENTRIES("location", "w.bin", "offset", "99"), "cut short");
  expect_refusal(ENTRIES("location", "w.bin", "offset", "-1"), "the offset of its external data is '-1'");
  expect_refusal(ENTRIES("location", "w.bin", "length", "-1"), "the length of its external data is '-1'");
  expect_refusal(ENTRIES("location", "w.bin", "length", "16 bytes"), "is '16 bytes', not a number");
  expect_refusal(ENTRIES("location", "w.bin", "length", "99999999999999999999"), "not a number");
  assert_int_equal(mkfifo(path_of("pipe"), 0600), 0); /* nobody will ever write it */
  expect_refusal(ENTRIES("location", "pipe"), "pipe: is not a file but a pipe or a device");
  unlink(path_of("pipe"));
  expect_refusal(ENTRIES("offset", "0"), "tensor 'w'");
  expect_refusal(ENTRIES("", ""), "tensor 'w'");
}

static void external_data_outside_the_model_s_folder_is_refused(void **state) {
  static const char *const places[] = {"/etc/hostname", "../w.bin", "a/../../w.bin", ".."};
  (void)state;
  for (int i = 0; i < 4; i++)
    expect_refusal(ENTRIES("location", places[i]), "outside the model's folder");
}

/* w f32[300,300], of which the file holds the numbers from offset 8 on. */
enum { LARGE_ELEMS = 300 * 300 };

static float *large_numbers(void) {
  float *large = mem_new((LARGE_ELEMS + 2) * sizeof *large);
  for (int i = 0; i < LARGE_ELEMS + 2; i++)
    large[i] = (float)i / 7;
  return large;
}

static void write_large(const float *large, const char *location) {
  Onnx__TensorProto *tensor;
  struct onnx_build build;
  write_file("w.bin", large, (LARGE_ELEMS + 2) * sizeof *large);
  onnx_build_init(&build, 17);
  onnx_build_weight(&build, "small", DIMS(4));
  tensor = onnx_build_tensor(&build, "w", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(300, 300));
  make_external(&build, tensor, ENTRIES("location", location, "offset", "8", "length", "360000"));
  onnx_build_add(&build, tensor);
  write_model(&build);
  onnx_build_fini(&build);
}

/* Reads the pieces of w to out. */
static int read_large(const struct model_file *file, float *out, struct err *err) {
  struct piece_source source = model_file_pieces(file);
  Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, file->size_bytes, file->bytes);
  struct pieces pieces;
  int rc = 0;
  *err = ERR_NONE;
  assert_non_null(source.read);
  assert_true(onnx_pieces_find(model->graph->initializer[1], &pieces));
  assert_int_equal(pieces.n, 2);
  for (uint32_t i = 0; i < 2 && !rc; i++) {
    struct piece_read read = pieces_read(&pieces, i, out + i * PIECE_ELEMS);
    rc = source.read(source.user, &read, 1, err);
  }
  onnx__model_proto__free_unpacked(model, NULL);
  return rc;
}

static void large_external_tensors_are_named_by_pieces_and_stay_where_they_are(void **state) {
  float *large = large_numbers(), *read = mem_new(LARGE_ELEMS * sizeof *read);
  struct model_file file;
  Onnx__ModelProto *model;
  struct err err = ERR_NONE;
  void *bytes;
  size_t size;
  (void)state;
  write_large(large, "w.bin");
  assert_int_equal(model_file_open(path_of("m.onnx"), &file, &err), 0);
  assert_in_range(file.size_bytes, 1, 2048);
  assert_int_equal(read_large(&file, read, &err), 0);
  assert_memory_equal(read, large + 2, LARGE_ELEMS * sizeof *read);
  model_file_close(&file);
  assert_int_equal(model_file_read(path_of("m.onnx"), &bytes, &size, &err), 0);
  model = onnx__model_proto__unpack(NULL, size, bytes);
  assert_int_equal(model->graph->initializer[1]->raw_data.len, LARGE_ELEMS * sizeof *read);
  assert_memory_equal(model->graph->initializer[1]->raw_data.data, large + 2, LARGE_ELEMS * sizeof *read);
  assert_int_equal(model->graph->initializer[1]->n_external_data, 0);
  onnx__model_proto__free_unpacked(model, NULL);
  free(bytes);
  free(large);
  free(read);
}

static void an_external_file_that_changes_meanwhile_is_named_with_its_place(void **state) {
  float *large = large_numbers(), *read = mem_new(LARGE_ELEMS * sizeof *read);
  struct model_file file;
  struct err err = ERR_NONE;
  (void)state;
  write_large(large, "w.bin");
  assert_int_equal(model_file_open(path_of("m.onnx"), &file, &err), 0);
  large[PIECE_ELEMS + 2] += 1;
  write_file("w.bin", large, (LARGE_ELEMS + 2) * sizeof *large);
  assert_int_equal(read_large(&file, read, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "w.bin: its bytes from 262152 to 360008 have changed"));
  assert_int_equal(truncate(path_of("w.bin"), 300000), 0);
  assert_int_equal(read_large(&file, read, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "w.bin: has become shorter"));
  model_file_close(&file);
  free(large);
  free(read);
}

static void a_link_out_of_the_model_s_folder_is_refused(void **state) {
  float *large = large_numbers();
  struct model_file file;
  struct err err = ERR_NONE;
  (void)state;
  write_large(large, "link.bin");
  assert_int_equal(symlink("w.bin", path_of("link.bin")), 0); /* a link that stays is none of our business */
  assert_int_equal(model_file_open(path_of("m.onnx"), &file, &err), 0);
  model_file_close(&file);
  unlink(path_of("link.bin"));
  assert_int_equal(symlink("/etc/hostname", path_of("link.bin")), 0);
  assert_int_equal(model_file_open(path_of("m.onnx"), &file, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "link.bin is a link that leads outside the model's folder"));
  model_file_close(&file);
  unlink(path_of("link.bin"));
  free(large);
}

static int setup(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  unlink(path_of("m.onnx"));
  unlink(path_of("w.bin"));
  return rmdir(folder);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(external_data_is_read_from_beside_the_model),
      cmocka_unit_test(a_constant_s_external_data_is_read_too),
      cmocka_unit_test(a_branch_s_and_a_function_s_external_data_are_read_too),
      cmocka_unit_test(external_data_that_is_not_there_is_named),
      cmocka_unit_test(external_data_outside_the_model_s_folder_is_refused),
      cmocka_unit_test(large_external_tensors_are_named_by_pieces_and_stay_where_they_are),
      cmocka_unit_test(an_external_file_that_changes_meanwhile_is_named_with_its_place),
      cmocka_unit_test(a_link_out_of_the_model_s_folder_is_refused),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}

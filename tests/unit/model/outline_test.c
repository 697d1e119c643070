/* Outlines: files without their large tensors, which they name by pieces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/half.h"
#include "model/model.h"
#include "model/onnx/onnx_outline.h"
#include "tests/support/model/graph_build.h"
#include "tests/support/model/onnx_build.h"

/* w1 is f32[IN,HIDDEN]: one piece and a part of another. */
enum { IN = 240, HIDDEN = 300, ELEMS = IN * HIDDEN, REST = ELEMS - PIECE_ELEMS };

static int read_places(void *user, const struct piece_read *reads, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    const struct piece_place *place = onnx_outline_find(user, reads[i].key);
    if (!place)
      return err_set(err, ERR_NOT_FOUND, "no piece %s", reads[i].key);
    assert_int_equal(place->size_bytes, reads[i].size_bytes);
    memcpy(reads[i].to, place->data, place->size_bytes);
  }
  return 0;
}

static struct model *open_bytes(const void *bytes, size_t size) {
  struct err err = ERR_NONE;
  struct model *model;
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = 2}, &model, &err))
    fail_msg("%s", err.text);
  return model;
}

static void make_outline(struct onnx_build *build, struct onnx_outline *out) {
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  onnx_outline_make(bytes, size, out);
  assert_non_null(out->bytes);
}

static void large_tensors_are_left_out_and_nothing_else_changes(void **state) {
  struct onnx_build build;
  struct onnx_outline outline;
  struct graph *whole, *graph;
  struct err err = ERR_NONE;
  size_t size;
  const struct value *w1;
  (void)state;
  onnx_build_mlp(&build, IN, HIDDEN, 2);
  build.model.producer_name = (char *)"somebody";
  make_outline(&build, &outline);
  assert_in_range(outline.size_bytes, 1, 8192);
  assert_int_equal(outline.n_places, 2);
  whole = read_graph(&build);
  assert_int_equal(graph_load_onnx(outline.bytes, outline.size_bytes, &graph, &err), 0);
  assert_int_equal(graph->n_values, whole->n_values);
  assert_int_equal(graph->n_nodes, whole->n_nodes);
  for (int v = 0; v < graph->n_values; v++) {
    const struct value *a = &graph->values[v], *b = &whole->values[v];
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->dtype, b->dtype);
    assert_true(shape_is_same(&a->shape, &b->shape));
    assert_true((a->pieces != NULL) == (strcmp(a->name, "w1") == 0) && !b->pieces);
    if (a->data)
      assert_memory_equal(a->data, b->data, (size_t)shape_elems(&a->shape) * dtype_size(a->dtype));
  }
  w1 = &graph->values[graph_find(graph, "w1")];
  assert_null(w1->data);
  assert_int_equal(w1->pieces->n, 2);
  assert_int_equal(pieces_elems(w1->pieces, 1), REST);
  onnx_build_pack(&build, &size);
  assert_in_range(outline.size_bytes + ELEMS * sizeof(float), size, size + 1024);
  graph_free(graph);
  graph_free(whole);
  onnx_outline_fini(&outline);
  onnx_build_fini(&build);
}

static void a_model_of_an_outline_has_the_same_weights_in_the_same_blocks(void **state) {
  struct onnx_build build;
  struct onnx_outline outline;
  struct model *whole, *model;
  struct err err = ERR_NONE;
  char hashes[2][SHA256_HEX_SIZE];
  float *block = mem_new(BLOCK_ELEMS_MAX * sizeof *block),
        *expected = mem_new(BLOCK_ELEMS_MAX * sizeof *block);
  size_t size;
  const void *bytes;
  (void)state;
  onnx_build_mlp(&build, IN, HIDDEN, 2);
  make_outline(&build, &outline);
  bytes = onnx_build_pack(&build, &size);
  onnx_outline_fini(&outline);
  onnx_outline_make(bytes, size, &outline);
  whole = open_bytes(bytes, size);
  model = open_bytes(outline.bytes, outline.size_bytes);
  assert_int_equal(model->n_blocks, whole->n_blocks);
  assert_int_equal(model->param_elems, whole->param_elems);
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    struct block_piece piece = model_block_piece(model, b);
    assert_null(model_block_piece(whole, b).pieces);
    assert_true((piece.pieces != NULL) == (b < 2));
    model_initial_block(whole, b, expected);
    model_initial_block(model, b, block);
    if (piece.pieces) {
      struct piece_read read = pieces_read(piece.pieces, piece.piece, block);
      assert_int_equal(piece.piece, b);
      assert_int_equal(read.size_bytes, model->blocks[b].elems * sizeof(float));
      assert_int_equal(read_places(&outline, &read, 1, &err), 0);
    }
    assert_memory_equal(block, expected, model->blocks[b].elems * sizeof *block);
  }
  assert_int_equal(model_initial_sha256(whole, NULL, hashes[0], &err), 0);
  assert_int_equal(
      model_initial_sha256(model, &(struct piece_source){read_places, &outline}, hashes[1], &err), 0);
  assert_string_equal(hashes[0], hashes[1]);
  model_close(model);
  model_close(whole);
  onnx_outline_fini(&outline);
  onnx_build_fini(&build);
  free(block);
  free(expected);
}

static void halves_are_pieces_of_as_many_elements(void **state) {
  uint16_t *halves = mem_new(ELEMS * sizeof *halves);
  float *decoded = mem_new(PIECE_ELEMS * sizeof *decoded);
  const int types[] = {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16};
  (void)state;
  for (int i = 0; i < ELEMS; i++)
    halves[i] = (uint16_t)(0x3000 + i % 2048);
  for (int t = 0; t < 2; t++) {
    struct onnx_build build;
    struct onnx_outline outline;
    struct graph *graph;
    struct err err = ERR_NONE;
    const struct pieces *pieces;
    onnx_build_mlp(&build, IN, HIDDEN, 2);
    build.graph.initializer[0]->data_type = types[t];
    onnx_build_raw(&build, build.graph.initializer[0], halves, ELEMS * sizeof *halves);
    make_outline(&build, &outline);
    assert_int_equal(graph_load_onnx(outline.bytes, outline.size_bytes, &graph, &err), 0);
    pieces = graph->values[graph_find(graph, "w1")].pieces;
    assert_int_equal(graph->values[graph_find(graph, "w1")].dtype, DTYPE_F32);
    for (uint32_t p = 0; p < 2; p++) {
      struct piece_read read = pieces_read(pieces, p, decoded);
      assert_int_equal(read.size_bytes, pieces_elems(pieces, p) * sizeof(uint16_t));
      assert_int_equal(read_places(&outline, &read, 1, &err), 0);
      piece_decode(pieces->type, decoded, pieces_elems(pieces, p), decoded);
      for (uint32_t i = 0; i < pieces_elems(pieces, p); i++) {
        uint16_t bits = halves[p * PIECE_ELEMS + i];
        assert_true(decoded[i] == (t == 0 ? f32_of_f16(bits) : f32_of_bf16(bits)));
      }
    }
    graph_free(graph);
    onnx_outline_fini(&outline);
    onnx_build_fini(&build);
  }
  free(halves);
  free(decoded);
}

static void a_number_that_is_not_finite_is_named_by_its_place(void **state) {
  struct onnx_build build;
  struct onnx_outline outline;
  struct model *model;
  struct err err = ERR_NONE;
  (void)state;
  onnx_build_mlp(&build, IN, HIDDEN, 2);
  ((float *)(void *)build.graph.initializer[0]->raw_data.data)[PIECE_ELEMS + 7] = INFINITY;
  make_outline(&build, &outline);
  model = open_bytes(outline.bytes, outline.size_bytes);
  assert_int_equal(model_initial_check(model, &(struct piece_source){read_places, &outline}, &err),
                   ERR_INVALID);
  assert_string_equal(err.text, "initializer 'w1': element 65543 is inf, weights must be finite");
  model_close(model);
  onnx_outline_fini(&outline);
  onnx_build_fini(&build);
}

/* A vector, a tensor whose data is of another size, one that is small, f64: all stay. */
static void what_is_no_large_matrix_of_reals_stays(void **state) {
  struct onnx_build build;
  struct onnx_outline outline;
  size_t size;
  const void *bytes;
  char *data = mem_new(ELEMS * 8);
  Onnx__TensorProto *tensor;
  (void)state;
  onnx_build_mlp(&build, 4, 4, 2);
  tensor = onnx_build_tensor(&build, "vector", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(ELEMS));
  onnx_build_raw(&build, tensor, data, ELEMS * 4);
  onnx_build_add(&build, tensor);
  tensor = onnx_build_tensor(&build, "cut", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(IN, HIDDEN));
  onnx_build_raw(&build, tensor, data, ELEMS * 4 - 4);
  onnx_build_add(&build, tensor);
  tensor = onnx_build_tensor(&build, "small", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(PIECE_ELEMS - 1, 1));
  onnx_build_raw(&build, tensor, data, (PIECE_ELEMS - 1) * 4);
  onnx_build_add(&build, tensor);
  tensor = onnx_build_tensor(&build, "ids", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(IN, HIDDEN));
  onnx_build_raw(&build, tensor, data, ELEMS * 8);
  onnx_build_add(&build, tensor);
  bytes = onnx_build_pack(&build, &size);
  onnx_outline_make(bytes, size, &outline);
  assert_null(outline.bytes);
  assert_null(onnx_outline_find(&outline, "x"));
  onnx_outline_fini(&outline);
  onnx_build_fini(&build);
  free(data);
}

static void what_is_not_onnx_is_left_alone_wherever_it_ends(void **state) {
  struct onnx_build build;
  struct onnx_outline outline;
  size_t size;
  const uint8_t *bytes;
  uint8_t *copy, *twice;
  (void)state;
  onnx_build_mlp(&build, IN, HIDDEN, 2);
  bytes = onnx_build_pack(&build, &size);
  for (size_t end = 0; end < size; end += end < 300 || size - end < 3000 ? 1 : 997) {
    copy = malloc(end + 1); /* for sanitizers: nothing lies behind it */
    memcpy(copy, bytes, end);
    onnx_outline_make(copy, end, &outline);
    assert_true(!outline.bytes || size - end < 64); /* what follows the graph may be missing */
    onnx_outline_fini(&outline);
    free(copy);
  }
  for (size_t at = 0; at < 200; at++) { /* damaged: whatever it is now, it is read within its bounds */
    copy = malloc(size);
    memcpy(copy, bytes, size);
    copy[at] ^= 0xff;
    onnx_outline_make(copy, size, &outline);
    onnx_outline_fini(&outline);
    free(copy);
  }
  twice = malloc(2 * size); /* protobuf merges two graphs */
  memcpy(twice, bytes, size);
  memcpy(twice + size, bytes, size);
  onnx_outline_make(twice, 2 * size, &outline);
  assert_null(outline.bytes);
  free(twice);
  onnx_build_fini(&build);
}

static void refuse_pieces(int64_t rows, const char *keys) {
  static Onnx__StringStringEntryProto entries[2], *list[2] = {&entries[0], &entries[1]};
  struct onnx_build build;
  Onnx__TensorProto *tensor;
  onnx_build_mlp(&build, 4, 4, 2);
  tensor = onnx_build_tensor(&build, "w", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, DIMS(rows, 2));
  for (int i = 0; i < 2; i++)
    onnx__string_string_entry_proto__init(&entries[i]);
  entries[0].key = (char *)"location";
  entries[0].value = (char *)"weir.pieces";
  entries[1].key = (char *)"sha256";
  entries[1].value = (char *)keys;
  tensor->has_data_location = true;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  tensor->external_data = list;
  tensor->n_external_data = 2;
  onnx_build_add(&build, tensor);
  refuse_graph(&build, ERR_INVALID, "initializer 'w': its pieces are not those of its shape and type");
}

static void pieces_that_do_not_fit_their_tensor_are_refused(void **state) {
  char keys[2 * 64 + 1];
  (void)state;
  memset(keys, 'a', sizeof keys - 1);
  keys[sizeof keys - 1] = 0;
  refuse_pieces(PIECE_ELEMS / 2, keys);               /* one too many */
  refuse_pieces(PIECE_ELEMS + PIECE_ELEMS / 2, keys); /* one too few */
  refuse_pieces(PIECE_ELEMS / 2 - 1, keys);           /* too small a tensor */
  refuse_pieces(INT64_C(1) << 55, keys);
  keys[64] = 'A';
  refuse_pieces(PIECE_ELEMS, keys);
  keys[64] = 0;
  refuse_pieces(PIECE_ELEMS, keys);
  refuse_pieces(PIECE_ELEMS, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(large_tensors_are_left_out_and_nothing_else_changes),
      cmocka_unit_test(a_model_of_an_outline_has_the_same_weights_in_the_same_blocks),
      cmocka_unit_test(halves_are_pieces_of_as_many_elements),
      cmocka_unit_test(a_number_that_is_not_finite_is_named_by_its_place),
      cmocka_unit_test(what_is_no_large_matrix_of_reals_stays),
      cmocka_unit_test(what_is_not_onnx_is_left_alone_wherever_it_ends),
      cmocka_unit_test(pieces_that_do_not_fit_their_tensor_are_refused),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

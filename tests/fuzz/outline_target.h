/* What a hostile ONNX file goes through where large tensors are left out of it: the outline is made, read as
   a model, and filled again. What was left out comes back as it was. */
#ifndef WEIR_TESTS_FUZZ_OUTLINE_TARGET_H
#define WEIR_TESTS_FUZZ_OUTLINE_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "common/base/unpack.h"
#include "model/model.h"
#include "model/onnx/onnx_outline.h"
#include "model/onnx/onnx_pieces.h"

enum { OUTLINE_SAMPLES = 2 };

/* A struct piece_source's read: from the file that the outline is of. */
static int outline_read(void *user, const struct piece_read *reads, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    const struct piece_place *place = onnx_outline_find(user, reads[i].key);
    if (!place || place->size_bytes != reads[i].size_bytes)
      return err_set(err, ERR_NOT_FOUND, "no such piece");
    memcpy(reads[i].to, place->data, place->size_bytes);
  }
  return 0;
}

/* Pieces lie in the file, are no larger than a piece is, and are found by their hashes. */
static void outline_check_places(const struct onnx_outline *outline, const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < outline->n_places; i++) {
    const struct piece_place *place = &outline->places[i];
    const uint8_t *data = place->data;
    char key[SHA256_HEX_SIZE];
    if (data < bytes || place->size_bytes > PIECE_BYTES_MAX || place->size_bytes > size ||
        (size_t)(data - bytes) > size - place->size_bytes || !onnx_outline_find(outline, place->key))
      abort();
    sha256_hex(data, place->size_bytes, key);
    if (strcmp(key, place->key) != 0)
      abort();
  }
  for (size_t i = 0; i < outline->n_named; i++)
    if (outline->named[i].size_bytes > PIECE_BYTES_MAX ||
        !onnx_outline_find_named(outline, outline->named[i].key))
      abort();
}

/* The initializers of the outline, filled, are those of the file. */
static void outline_check_filled(const struct onnx_outline *outline, const uint8_t *bytes, size_t size) {
  struct err err = ERR_NONE;
  Onnx__ModelProto *file = message_unpack(&onnx__model_proto__descriptor, bytes, size, &err);
  Onnx__ModelProto *read = NULL;
  struct piece_source source = {outline_read, (void *)outline};
  if (!file)
    return;
  read = message_unpack(&onnx__model_proto__descriptor, outline->bytes, outline->size_bytes, &err);
  if (!read || read->graph->n_initializer != file->graph->n_initializer)
    abort();
  for (size_t i = 0; i < read->graph->n_initializer; i++) {
    Onnx__TensorProto *before = file->graph->initializer[i], *after = read->graph->initializer[i];
    if (!onnx_is_in_pieces(after) || onnx_is_in_pieces(before))
      continue;
    if (onnx_pieces_fill(after, &source, &err) || before->raw_data.len != after->raw_data.len ||
        memcmp(before->raw_data.data, after->raw_data.data, after->raw_data.len) != 0)
      abort();
  }
  onnx__model_proto__free_unpacked(read, NULL);
  onnx__model_proto__free_unpacked(file, NULL);
}

/* As a server reads it. */
static void outline_open_model(const struct onnx_outline *outline) {
  struct piece_source source = {outline_read, (void *)outline};
  char sha256[SHA256_HEX_SIZE];
  struct err err = ERR_NONE;
  struct model *model;
  if (model_open(&(struct model_source){.onnx = outline->bytes,
                                        .size_bytes = outline->size_bytes,
                                        .samples = OUTLINE_SAMPLES},
                 &model, &err))
    return;
  model_initial_sha256(model, &source, sha256, &err);
  model_close(model);
}

static inline void outline_target(const uint8_t *bytes, size_t size) {
  struct onnx_outline outline, names;
  onnx_outline_make(bytes, size, &outline);
  outline_check_places(&outline, bytes, size);
  if (outline.bytes) {
    struct onnx_outline again;
    outline_check_filled(&outline, bytes, size);
    outline_open_model(&outline);
    onnx_outline_make(outline.bytes, outline.size_bytes, &again);
    if (again.bytes || again.n_named < outline.n_named) /* nothing more is left out of an outline */
      abort();
    onnx_outline_fini(&again);
  }
  onnx_outline_names(bytes, size, &names);
  if (names.n_named != outline.n_named)
    abort();
  onnx_outline_fini(&names);
  onnx_outline_fini(&outline);
}

#endif

/* What hostile messages about pieces of models go through at the coordinator, a client and a member: the
   first byte says which message the others are. */
#ifndef WEIR_TESTS_FUZZ_PIECES_TARGET_H
#define WEIR_TESTS_FUZZ_PIECES_TARGET_H

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/unpack.h"
#include "model/onnx/onnx_outline.h"
#include "model/onnx/onnx_pieces.h"
#include "training.pb-c.h"

enum { TARGET_SIDE = 256 };

/* An ONNX file with one tensor of zeros, a piece, and one that the file names by its piece. */
static void *target_file(size_t *size) {
  static uint8_t zeros[TARGET_SIDE * TARGET_SIDE * 2];
  static int64_t dims[] = {TARGET_SIDE, TARGET_SIDE};
  Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
  Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
  Onnx__TensorProto whole = ONNX__TENSOR_PROTO__INIT, named = ONNX__TENSOR_PROTO__INIT;
  Onnx__TensorProto *tensors[] = {&whole, &named};
  char *keys = mem_new(SHA256_HEX_SIZE);
  void *bytes;
  for (int i = 0; i < 2; i++) {
    tensors[i]->has_data_type = true;
    tensors[i]->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
    tensors[i]->dims = dims;
    tensors[i]->n_dims = 2;
  }
  whole.name = (char *)"whole";
  whole.has_raw_data = true;
  whole.raw_data = (ProtobufCBinaryData){sizeof zeros, zeros};
  named.name = (char *)"named";
  memset(keys, 'a', SHA256_HEX_SIZE - 1);
  onnx_pieces_set(&named, keys);
  graph.initializer = tensors;
  graph.n_initializer = 2;
  model.graph = &graph;
  *size = onnx__model_proto__get_packed_size(&model);
  bytes = mem_new(*size);
  onnx__model_proto__pack(&model, bytes);
  for (size_t i = 0; i < named.n_external_data; i++)
    onnx__string_string_entry_proto__free_unpacked(named.external_data[i], NULL);
  free(named.external_data);
  return bytes;
}

static const struct onnx_outline *target_outline(void) {
  static struct onnx_outline outline;
  static void *file;
  size_t size;
  if (!file) {
    file = target_file(&size);
    onnx_outline_make(file, size, &outline);
    if (outline.n_places != 1 || outline.n_named != 1)
      abort();
  }
  return &outline;
}

/* Keys that were asked for: found as they are, or not at all. */
static void target_find(char *const *keys, size_t n) {
  const struct onnx_outline *outline = target_outline();
  for (size_t i = 0; i < n; i++) {
    const struct piece_place *place = onnx_outline_find(outline, keys[i]);
    const struct piece_place *named = onnx_outline_find_named(outline, keys[i]);
    if ((place && strcmp(place->key, keys[i])) || (named && strcmp(named->key, keys[i])))
      abort();
  }
}

static void target_upload(Weir__SubmitRequest *request) {
  struct onnx_outline names;
  struct err err = ERR_NONE;
  if (request->spec)
    spec_check(request->spec, &err);
  onnx_outline_names(request->chunk.data, request->chunk.len, &names);
  onnx_outline_fini(&names);
}

/* A piece of each type, as far as it goes. */
static void target_piece(const ProtobufCBinaryData *data) {
  static float out[PIECE_ELEMS];
  for (int type = PIECE_F32; type <= PIECE_BF16; type++) {
    size_t elems = data->len / piece_type_size((enum piece_type)type);
    if (elems > 0 && elems <= PIECE_ELEMS)
      piece_decode((enum piece_type)type, data->data, (uint32_t)elems, out);
  }
}

static void pieces_target(const uint8_t *bytes, size_t size) {
  static const ProtobufCMessageDescriptor *const kinds[] = {
      &weir__pieces_request__descriptor, &weir__submit_request__descriptor, &weir__submit_reply__descriptor,
      &weir__chunk__descriptor};
  size_t kind = size ? bytes[0] % (sizeof kinds / sizeof *kinds) : 0;
  struct err err = ERR_NONE;
  void *message = size ? message_unpack(kinds[kind], bytes + 1, size - 1, &err) : NULL;
  if (!message)
    return;
  if (kind == 0)
    target_find(((Weir__PiecesRequest *)message)->keys, ((Weir__PiecesRequest *)message)->n_keys);
  else if (kind == 1)
    target_upload(message);
  else if (kind == 2)
    target_find(((Weir__SubmitReply *)message)->wanted, ((Weir__SubmitReply *)message)->n_wanted);
  else
    target_piece(&((Weir__Chunk *)message)->data);
  message_free(message);
}

#endif

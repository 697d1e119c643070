/* What an outline says in place of an initializer's data. */
#include "model/onnx/onnx_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "model/onnx/onnx_parts.h"

static const char pieces_location[] = "weir.pieces", pieces_key[] = "sha256";

static bool find_type(const Onnx__TensorProto *tensor, enum piece_type *type) {
  switch (tensor->data_type) {
  case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
    *type = PIECE_F32;
    return true;
  case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16:
    *type = PIECE_F16;
    return true;
  case ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16:
    *type = PIECE_BF16;
    return true;
  default:
    return false;
  }
}

/* All but the keys. A vector is never left out: running statistics are vectors, and no parameters. */
static bool plan_shape(const Onnx__TensorProto *tensor, struct pieces *pieces) {
  struct err err = ERR_NONE;
  struct shape shape;
  int64_t elems;
  *pieces = (struct pieces){0};
  if (!find_type(tensor, &pieces->type) || onnx_shape_read(tensor, "it", &shape, &err))
    return false;
  elems = shape_elems(&shape);
  if (shape.rank < 2 || elems < PIECE_ELEMS || elems > (int64_t)UINT32_MAX * PIECE_ELEMS)
    return false;
  pieces->elems = (uint64_t)elems;
  pieces->n = pieces_count(pieces->elems);
  return true;
}

bool onnx_pieces_fit(const Onnx__TensorProto *tensor, uint64_t data_bytes, struct pieces *pieces) {
  return tensor->name && plan_shape(tensor, pieces) &&
         pieces->elems * piece_type_size(pieces->type) == data_bytes;
}

bool onnx_pieces_plan(const Onnx__TensorProto *tensor, size_t data_bytes, struct pieces *pieces) {
  bool is_here =
      !tensor->has_data_location || tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT;
  return is_here && tensor->n_external_data == 0 && onnx_pieces_fit(tensor, data_bytes, pieces);
}

/* text is taken. */
static void entry_add(Onnx__TensorProto *tensor, const char *key, char *text) {
  Onnx__StringStringEntryProto *entry = mem_new(sizeof *entry);
  onnx__string_string_entry_proto__init(entry);
  entry->key = mem_strdup(key);
  entry->value = text;
  tensor->external_data =
      mem_resize(tensor->external_data, (tensor->n_external_data + 1) * sizeof *tensor->external_data);
  tensor->external_data[tensor->n_external_data++] = entry;
}

/* No data is left, in whatever field it was. */
static void tensor_clear(Onnx__TensorProto *tensor) {
  for (size_t i = 0; i < tensor->n_external_data; i++)
    onnx__string_string_entry_proto__free_unpacked(tensor->external_data[i], NULL);
  tensor->n_external_data = 0;
  free(tensor->raw_data.data);
  tensor->raw_data = (ProtobufCBinaryData){0};
  tensor->has_raw_data = false;
  free(tensor->float_data);
  tensor->float_data = NULL;
  tensor->n_float_data = 0;
  free(tensor->int32_data);
  tensor->int32_data = NULL;
  tensor->n_int32_data = 0;
}

static void tensor_be_external(Onnx__TensorProto *tensor, const char *location) {
  tensor_clear(tensor);
  tensor->has_data_location = true;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  entry_add(tensor, "location", mem_strdup(location));
}

void onnx_pieces_set(Onnx__TensorProto *tensor, char *keys) {
  tensor_be_external(tensor, pieces_location);
  entry_add(tensor, pieces_key, keys);
}

void onnx_external_set(Onnx__TensorProto *tensor, const char *location, uint64_t offset,
                       uint64_t size_bytes) {
  tensor_be_external(tensor, location);
  entry_add(tensor, "offset", mem_printf("%llu", (unsigned long long)offset));
  entry_add(tensor, "length", mem_printf("%llu", (unsigned long long)size_bytes));
}

static const char *find_entry(const Onnx__TensorProto *proto, const char *key) {
  for (size_t i = 0; i < proto->n_external_data; i++) {
    const Onnx__StringStringEntryProto *entry = proto->external_data[i];
    if (entry->key && entry->value && strcmp(entry->key, key) == 0)
      return entry->value;
  }
  return NULL;
}

bool onnx_is_in_pieces(const Onnx__TensorProto *proto) {
  const char *location = find_entry(proto, "location");
  return proto->has_data_location && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL &&
         location && strcmp(location, pieces_location) == 0;
}

bool onnx_pieces_find(const Onnx__TensorProto *tensor, struct pieces *pieces) {
  const char *keys = find_entry(tensor, pieces_key);
  if (!keys || tensor->has_raw_data || !plan_shape(tensor, pieces) ||
      strlen(keys) != (size_t)pieces->n * (SHA256_HEX_SIZE - 1) ||
      strspn(keys, "0123456789abcdef") != strlen(keys))
    return false;
  pieces->keys = keys;
  return true;
}

void onnx_tensor_put(Onnx__TensorProto *tensor, void *data, size_t size) {
  bool was_external = tensor->has_data_location;
  tensor_clear(tensor);
  tensor->raw_data.data = data;
  tensor->raw_data.len = size;
  tensor->has_raw_data = 1;
  tensor->has_data_location = was_external;
  tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT;
}

int onnx_pieces_fill(Onnx__TensorProto *tensor, const struct piece_source *source, struct err *err) {
  struct pieces pieces;
  char *data;
  size_t at = 0;
  if (!onnx_pieces_find(tensor, &pieces))
    return err_set(err, ERR_INVALID, "initializer '%.100s': its pieces are not those of its shape and type",
                   tensor->name ? tensor->name : "");
  data = malloc(pieces.elems * piece_type_size(pieces.type));
  if (!data)
    return err_set(err, ERR_NO_MEMORY, "no memory for initializer '%.100s'", tensor->name);
  for (uint32_t i = 0; i < pieces.n && !err->code; i++) {
    struct piece_read read = pieces_read(&pieces, i, data + at);
    at += read.size_bytes;
    if (!source || !source->read)
      err_set(err, ERR_NOT_FOUND, "initializer '%.100s' is in pieces, which are not here", tensor->name);
    else if (source->read(source->user, &read, 1, err))
      err_prefix(err, "initializer '%.100s'", tensor->name);
  }
  if (err->code)
    free(data);
  else
    onnx_tensor_put(tensor, data, at);
  return err->code;
}

int onnx_pieces_read(struct onnx_reader *reader, const Onnx__TensorProto *proto, const char *what,
                     struct onnx_tensor *out, struct err *err) {
  struct arena *arena = &reader->graph->arena;
  struct pieces *pieces = arena_new(arena, sizeof *pieces);
  *out = (struct onnx_tensor){.dtype = DTYPE_F32, .pieces = pieces};
  if (onnx_shape_read(proto, what, &out->shape, err))
    return err->code;
  if (!onnx_pieces_find(proto, pieces))
    return err_set(err, ERR_INVALID, "%s: its pieces are not those of its shape and type", what);
  pieces->keys = arena_strdup(arena, pieces->keys);
  return 0;
}

/* Outlines of ONNX files: made on the wire's form, without unpacking gigabytes. */
#include "model/onnx/onnx_outline.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/unpack.h"
#include "model/graph/pieces.h"
#include "model/onnx/onnx_pieces.h"

/* Fields of onnx.proto. */
enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_RAW_DATA = 9 };

/* Of a tensor without raw_data: names of the pieces of gigabytes, but no gigabytes of numbers. */
enum { NAMES_BYTES_MAX = 16 << 20 };

enum { WIRE_VARINT, WIRE_64, WIRE_LENGTH, WIRE_32 = 5, VARINT_MAX = 10 };

struct span {
  const uint8_t *begin, *end;
};

/* One field of a message, as it lies on the wire. */
struct field {
  uint64_t number;
  bool is_length;    /* length-delimited: body is what it holds */
  struct span whole; /* key included */
  struct span body;
};

/* Grows. */
struct bytes {
  uint8_t *data;
  size_t size, capacity;
};

/* What is being made. */
struct making {
  struct onnx_outline *out;
  bool names_only;
  size_t places_capacity, named_capacity;
};

/* data may be NULL where there is none. */
static struct span span_of(const void *data, size_t size) {
  const uint8_t *begin = data;
  return (struct span){begin, size ? begin + size : begin};
}

static bool varint_read(struct span *from, uint64_t *out) {
  *out = 0;
  for (int shift = 0; from->begin < from->end && shift < 64; shift += 7) {
    uint8_t byte = *from->begin++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return true;
  }
  return false;
}

/* Takes the next field off the message. False: there is none, or (message->begin < message->end) not a
   well-formed one. */
static bool field_next(struct span *message, struct field *field) {
  struct span left = *message;
  uint64_t key, length = 0, ignored;
  if (!varint_read(&left, &key))
    return false;
  *field = (struct field){.number = key >> 3, .is_length = (key & 7) == WIRE_LENGTH};
  if ((key & 7) == WIRE_VARINT ? !varint_read(&left, &ignored)
                               : field->is_length && !varint_read(&left, &length))
    return false;
  if ((key & 7) == WIRE_64 || (key & 7) == WIRE_32)
    length = (key & 7) == WIRE_64 ? 8 : 4;
  else if ((key & 7) != WIRE_VARINT && !field->is_length)
    return false;
  if (length > (uint64_t)(left.end - left.begin))
    return false;
  field->body = (struct span){left.begin, left.begin + length};
  field->whole = (struct span){message->begin, field->body.end};
  message->begin = field->body.end;
  return true;
}

/* The only field of that number, which is length-delimited. False: there is none, or several. */
static bool field_find(struct span message, uint64_t number, struct field *out) {
  struct field field;
  int n = 0;
  *out = (struct field){.number = number};
  while (field_next(&message, &field))
    if (field.number == number) {
      *out = field;
      n++;
    }
  return n == 1 && out->is_length && message.begin == message.end;
}

static void bytes_add(struct bytes *bytes, const void *data, size_t size) {
  if (size > bytes->capacity - bytes->size) {
    bytes->capacity = 2 * (bytes->size + size);
    bytes->data = mem_resize(bytes->data, bytes->capacity);
  }
  if (size)
    memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static void bytes_add_span(struct bytes *bytes, const uint8_t *begin, const uint8_t *end) {
  bytes_add(bytes, begin, (size_t)(end - begin));
}

static void bytes_add_varint(struct bytes *bytes, uint64_t value) {
  uint8_t text[VARINT_MAX];
  size_t n = 0;
  for (; value > 0x7f; value >>= 7)
    text[n++] = (uint8_t)(value | 0x80);
  text[n++] = (uint8_t)value;
  bytes_add(bytes, text, n);
}

static void bytes_add_field(struct bytes *bytes, uint64_t number, const void *body, size_t size) {
  bytes_add_varint(bytes, number << 3 | WIRE_LENGTH);
  bytes_add_varint(bytes, size);
  bytes_add(bytes, body, size);
}

static struct piece_place *place_add(struct piece_place **places, size_t *n, size_t *capacity) {
  if (*n == *capacity) {
    *capacity = 2 * *capacity + 16;
    *places = mem_resize(*places, *capacity * sizeof **places);
  }
  (*places)[*n] = (struct piece_place){.data = NULL};
  return &(*places)[(*n)++];
}

/* Hashes the tensor's pieces and notes where they lie. Returns their keys, one after the other. */
static char *places_add(struct making *making, const struct pieces *pieces, const uint8_t *data) {
  struct onnx_outline *out = making->out;
  size_t key_length = SHA256_HEX_SIZE - 1;
  char *keys = mem_new(pieces->n * key_length + 1);
  for (uint32_t i = 0; i < pieces->n; i++) {
    struct piece_place *place = place_add(&out->places, &out->n_places, &making->places_capacity);
    place->data = data;
    place->size_bytes = pieces_bytes(pieces, i);
    sha256_hex(data, place->size_bytes, place->key);
    memcpy(keys + i * key_length, place->key, key_length);
    data += place->size_bytes;
  }
  return keys;
}

static void named_add(struct making *making, const Onnx__TensorProto *tensor) {
  struct onnx_outline *out = making->out;
  struct pieces pieces;
  if (!onnx_is_in_pieces(tensor) || !onnx_pieces_find(tensor, &pieces))
    return;
  for (uint32_t i = 0; i < pieces.n && out->n_named <= ONNX_NAMED_MAX; i++) {
    struct piece_read read = pieces_read(&pieces, i, NULL);
    struct piece_place *place = place_add(&out->named, &out->n_named, &making->named_capacity);
    place->size_bytes = read.size_bytes;
    memcpy(place->key, read.key, sizeof place->key);
  }
}

/* The initializer without its data, which is in *raw; NULL: it is not ONNX. */
static Onnx__TensorProto *initializer_read(const struct field *field, struct span *raw) {
  struct err err = ERR_NONE;
  struct bytes rest = {0};
  struct field data;
  Onnx__TensorProto *tensor;
  *raw = (struct span){NULL, NULL};
  if (field_find(field->body, TENSOR_RAW_DATA, &data)) {
    *raw = data.body;
    bytes_add_span(&rest, field->body.begin, data.whole.begin);
    bytes_add_span(&rest, data.whole.end, field->body.end);
  } else if (field->body.end - field->body.begin <= NAMES_BYTES_MAX) {
    bytes_add_span(&rest, field->body.begin, field->body.end);
  }
  tensor = message_unpack(&onnx__tensor_proto__descriptor, rest.data, rest.size, &err);
  free(rest.data);
  return tensor;
}

/* Adds the initializer to the graph: as it is, or without its data. */
static void initializer_add(struct making *making, const struct field *field, struct bytes *graph) {
  struct span raw;
  struct pieces pieces;
  Onnx__TensorProto *tensor = initializer_read(field, &raw);
  size_t size = (size_t)(raw.end - raw.begin);
  if (tensor && !raw.begin)
    named_add(making, tensor);
  if (tensor && raw.begin && !making->names_only && onnx_pieces_plan(tensor, size, &pieces)) {
    char *keys = places_add(making, &pieces, raw.begin);
    uint8_t *packed;
    onnx_pieces_set(tensor, keys);
    size = onnx__tensor_proto__get_packed_size(tensor);
    packed = mem_new(size);
    onnx__tensor_proto__pack(tensor, packed);
    bytes_add_field(graph, GRAPH_INITIALIZER, packed, size);
    free(packed);
  } else if (!making->names_only) {
    bytes_add_span(graph, field->whole.begin, field->whole.end);
  }
  if (tensor)
    onnx__tensor_proto__free_unpacked(tensor, NULL);
}

static int compare_places(const void *a, const void *b) {
  return strcmp(((const struct piece_place *)a)->key, ((const struct piece_place *)b)->key);
}

static void sort_places(struct piece_place *places, size_t n) {
  if (n)
    qsort(places, n, sizeof *places, compare_places);
}

/* What the graph has, initializers by initializer_add. False: it is not ONNX as anybody writes it. */
static bool graph_walk(struct making *making, struct span left, struct bytes *graph) {
  struct field field;
  while (field_next(&left, &field))
    if (field.number == GRAPH_INITIALIZER && field.is_length)
      initializer_add(making, &field, graph);
    else if (!making->names_only)
      bytes_add_span(graph, field.whole.begin, field.whole.end);
  sort_places(making->out->places, making->out->n_places);
  sort_places(making->out->named, making->out->n_named);
  return left.begin == left.end;
}

void onnx_outline_make(const void *file, size_t size_bytes, struct onnx_outline *out) {
  struct span whole = span_of(file, size_bytes);
  struct making making = {.out = out};
  struct bytes model = {0}, graph = {0};
  struct field proto;
  *out = (struct onnx_outline){0};
  if (!field_find(whole, MODEL_GRAPH, &proto))
    return;
  if (!graph_walk(&making, proto.body, &graph)) {
    onnx_outline_fini(out);
  } else if (out->n_places > 0) {
    bytes_add_span(&model, whole.begin, proto.whole.begin);
    bytes_add_field(&model, MODEL_GRAPH, graph.data, graph.size);
    bytes_add_span(&model, proto.whole.end, whole.end);
    out->bytes = model.data;
    out->size_bytes = model.size;
  }
  free(graph.data);
}

void onnx_outline_names(const void *file, size_t size_bytes, struct onnx_outline *out) {
  struct span whole = span_of(file, size_bytes);
  struct making making = {.out = out, .names_only = true};
  struct field proto;
  *out = (struct onnx_outline){0};
  if (field_find(whole, MODEL_GRAPH, &proto) && !graph_walk(&making, proto.body, NULL))
    onnx_outline_fini(out);
}

void onnx_outline_fini(struct onnx_outline *outline) {
  free(outline->bytes);
  free(outline->places);
  free(outline->named);
  *outline = (struct onnx_outline){0};
}

static const struct piece_place *find_place(const struct piece_place *places, size_t n, const char *key) {
  struct piece_place wanted = {.data = NULL};
  if (strlen(key) != SHA256_HEX_SIZE - 1 || n == 0)
    return NULL;
  memcpy(wanted.key, key, sizeof wanted.key);
  return bsearch(&wanted, places, n, sizeof *places, compare_places);
}

const struct piece_place *onnx_outline_find(const struct onnx_outline *outline, const char *key) {
  return find_place(outline->places, outline->n_places, key);
}

const struct piece_place *onnx_outline_find_named(const struct onnx_outline *outline, const char *key) {
  return find_place(outline->named, outline->n_named, key);
}

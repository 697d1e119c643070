/* Checks the raw bytes of a protobuf message before they are unpacked: protobuf-c's unpack recurses once for
   each nested message and would overflow the stack. */
#include "common/graph/onnx_parts.h"

#include <protobuf-c/protobuf-c.h>

enum { DEPTH_MAX = 64 }; /* a model without subgraphs nests 9 deep */

enum { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

struct cursor {
  const unsigned char *at, *end;
};

static bool read_varint(struct cursor *cursor, uint64_t *out) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
    unsigned char byte = *cursor->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out = value;
      return true;
    }
  }
  return false;
}

static bool skip(struct cursor *cursor, uint64_t bytes) {
  if (bytes > (uint64_t)(cursor->end - cursor->at))
    return false;
  cursor->at += bytes;
  return true;
}

/* Skips one field, whose bytes become *body when it is length-delimited. */
static bool read_field(struct cursor *cursor, uint64_t *number, struct cursor *body) {
  uint64_t key, value;
  if (!read_varint(cursor, &key) || key >> 3 == 0 || key > UINT32_MAX)
    return false;
  *number = key >> 3;
  *body = (struct cursor){NULL, NULL};
  switch (key & 7) {
  case WIRE_VARINT:
    return read_varint(cursor, &value);
  case WIRE_64BIT:
    return skip(cursor, 8);
  case WIRE_32BIT:
    return skip(cursor, 4);
  case WIRE_BYTES:
    if (!read_varint(cursor, &value))
      return false;
    body->at = cursor->at;
    if (!skip(cursor, value))
      return false;
    body->end = cursor->at;
    return true;
  default:
    return false;
  }
}

static enum onnx_wire check_message(const ProtobufCMessageDescriptor *type, struct cursor cursor, int depth) {
  if (depth > DEPTH_MAX)
    return ONNX_WIRE_DEEP;
  while (cursor.at < cursor.end) {
    const ProtobufCFieldDescriptor *field;
    struct cursor body;
    uint64_t number;
    enum onnx_wire wire;
    if (!read_field(&cursor, &number, &body))
      return ONNX_WIRE_BROKEN;
    field = protobuf_c_message_descriptor_get_field(type, (unsigned)number);
    if (!body.at || !field || field->type != PROTOBUF_C_TYPE_MESSAGE)
      continue;
    wire = check_message(field->descriptor, body, depth + 1);
    if (wire != ONNX_WIRE_OK)
      return wire;
  }
  return ONNX_WIRE_OK;
}

enum onnx_wire onnx_wire_check(const void *type, const void *bytes, size_t size_bytes) {
  struct cursor cursor = {bytes, (const unsigned char *)bytes + size_bytes};
  return check_message(type, cursor, 1);
}

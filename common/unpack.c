/* Unpacking messages that may be hostile: a walk over the wire format before protobuf-c sees it. */
#include "common/unpack.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct cursor {
  const uint8_t *at, *end;
};

static bool read_varint(struct cursor *cursor, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
    uint8_t byte = *cursor->at++;
    if (shift < 64)
      *value |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128))
      return true;
  }
  return false;
}

static bool skip(struct cursor *cursor, uint64_t size) {
  if (size > (uint64_t)(cursor->end - cursor->at))
    return false;
  cursor->at += size;
  return true;
}

/* NULL when every message within is well-formed and at most `depth` levels deep, else what is wrong. */
static const char *walk(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, int depth) {
  if (depth == 0)
    return "nested too deep";
  while (cursor.at < cursor.end) {
    const ProtobufCFieldDescriptor *field;
    uint64_t key, size = 0;
    if (!read_varint(&cursor, &key))
      return "cut short";
    switch (key & 7) {
    case WIRE_VARINT:
      if (!read_varint(&cursor, &size))
        return "cut short";
      continue;
    case WIRE_64:
    case WIRE_32:
      if (!skip(&cursor, (key & 7) == WIRE_64 ? 8 : 4))
        return "cut short";
      continue;
    case WIRE_BYTES:
      if (!read_varint(&cursor, &size) || size > (uint64_t)(cursor.end - cursor.at))
        return "cut short";
      break;
    default:
      return "not protobuf";
    }
    field = key >> 3 <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(key >> 3))
                                   : NULL;
    if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
      const char *wrong = walk(field->descriptor, (struct cursor){cursor.at, cursor.at + size}, depth - 1);
      if (wrong)
        return wrong;
    }
    cursor.at += size;
  }
  return NULL;
}

void *message_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t size,
                     struct err *err) {
  const uint8_t *begin = bytes;
  const char *wrong = walk(descriptor, (struct cursor){begin, begin + size}, UNPACK_DEPTH_MAX);
  void *message = wrong ? NULL : protobuf_c_message_unpack(descriptor, NULL, size, begin);
  if (!message)
    err_set(err, ERR_INVALID, "not a %s message: %s", descriptor->short_name,
            wrong ? wrong : "its fields do not parse");
  return message;
}

/* Protobuf messages in contiguous memory, field by field. */
#include "common/base/wire_field.h"

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 70 && *at < end; shift += 7) {
    uint8_t byte = *(*at)++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80)
      return true;
  }
  return false;
}

bool wire_next(const uint8_t **at, const uint8_t *end, struct wire_field *field) {
  const uint8_t *next = *at;
  uint64_t tag, value, size = 0;
  if (next == end || !read_varint(&next, end, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
    return false;
  switch (tag & 7) {
  case WIRE_VARINT:
    if (!read_varint(&next, end, &value))
      return false;
    break;
  case WIRE_FIXED64:
    size = 8;
    break;
  case WIRE_LENGTH:
    if (!read_varint(&next, end, &size))
      return false;
    break;
  case WIRE_FIXED32:
    size = 4;
    break;
  default:
    return false;
  }
  if (size > (size_t)(end - next))
    return false;
  *field = (struct wire_field){(uint32_t)(tag >> 3), tag & 7, next, size};
  *at = next + size;
  return true;
}

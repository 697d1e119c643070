/* Copies of protobuf-c messages. */
#include "common/base/message.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"

void *message_copy(const void *message) {
  const ProtobufCMessage *base = message;
  size_t size = protobuf_c_message_get_packed_size(base);
  unsigned char *bytes = mem_new(size);
  ProtobufCMessage *copy;
  protobuf_c_message_pack(base, bytes);
  copy = protobuf_c_message_unpack(base->descriptor, NULL, size, bytes);
  free(bytes);
  CHECK(copy);
  return copy;
}

void message_free(void *message) {
  if (message)
    protobuf_c_message_free_unpacked(message, NULL);
}

bool message_is_same(const void *a, const void *b) {
  size_t size = a && b ? protobuf_c_message_get_packed_size(a) : 0;
  bool is_same = a && b && protobuf_c_message_get_packed_size(b) == size;
  unsigned char *bytes = is_same ? mem_new(2 * size + 1) : NULL;
  if (is_same) {
    protobuf_c_message_pack(a, bytes);
    protobuf_c_message_pack(b, bytes + size);
    is_same = memcmp(bytes, bytes + size, size) == 0;
  }
  free(bytes);
  return is_same || (!a && !b);
}

size_t message_value_size(const ProtobufCFieldDescriptor *field) {
  switch (field->type) {
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_MESSAGE:
    return sizeof(void *);
  case PROTOBUF_C_TYPE_BYTES:
    return sizeof(ProtobufCBinaryData);
  case PROTOBUF_C_TYPE_BOOL:
    return sizeof(protobuf_c_boolean);
  case PROTOBUF_C_TYPE_DOUBLE:
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_FIXED64:
    return sizeof(uint64_t);
  default:
    return sizeof(uint32_t);
  }
}

/* Copies of protobuf-c messages. */
#include "common/message.h"

#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/memory.h"

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

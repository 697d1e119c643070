/* Unpacking messages that may be hostile: a walk over the wire format before protobuf-c sees it. */
#include "common/base/unpack.h"

#include "common/base/wire_field.h"

/* NULL when the bytes are fields throughout and no message lies more than `levels` deep, else what is wrong.
 */
static const char *bytes_walk(const ProtobufCMessageDescriptor *descriptor, const uint8_t *at, size_t size,
                              int levels) {
  const uint8_t *end = size ? at + size : at; /* NULL for an empty message */
  struct wire_field field;
  while (wire_next(&at, end, &field)) {
    const ProtobufCFieldDescriptor *known =
        field.kind == WIRE_LENGTH ? protobuf_c_message_descriptor_get_field(descriptor, field.number) : NULL;
    const char *wrong = NULL;
    if (!known || known->type != PROTOBUF_C_TYPE_MESSAGE)
      continue;
    if (levels == 0)
      return "messages are nested too deep";
    if ((wrong = bytes_walk(known->descriptor, field.data, field.size, levels - 1)))
      return wrong;
  }
  return at == end ? NULL : "it is cut short or damaged";
}

void *message_unpack(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t size,
                     struct err *err) {
  const char *wrong = bytes_walk(descriptor, bytes, size, UNPACK_DEPTH_MAX);
  void *message = wrong ? NULL : protobuf_c_message_unpack(descriptor, NULL, size, bytes);
  if (!message)
    err_set(err, ERR_INVALID, "not a %s: %s", descriptor->name, wrong ? wrong : "its fields do not parse");
  return message;
}

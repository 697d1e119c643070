/* Fields that came to ONNX after the onnx.proto that we build with. */
#include <string.h>

#include "common/base/unpack.h"
#include "model/onnx/onnx_parts.h"

enum { FUNCTION_ATTRIBUTE_PROTO_TAG = 11 };

/* A bytes field as it lies on the wire: its length as a varint, then the bytes. */
static bool skip_length(const ProtobufCMessageUnknownField *field, size_t *begin) {
  size_t length = 0;
  int shift = 0;
  for (*begin = 0; *begin < field->len && shift < 35; shift += 7) {
    uint8_t byte = field->data[(*begin)++];
    length |= (size_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return length == field->len - *begin;
  }
  return false;
}

void *onnx_newer_message(const ProtobufCMessageUnknownField *field, unsigned tag,
                         const ProtobufCMessageDescriptor *descriptor) {
  struct err err = ERR_NONE;
  size_t begin;
  if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED ||
      !skip_length(field, &begin))
    return NULL;
  return message_unpack(descriptor, field->data + begin, field->len - begin, &err);
}

const Onnx__AttributeProto *onnx_function_default(struct onnx_reader *reader,
                                                  const Onnx__FunctionProto *function, const char *name) {
  for (unsigned f = 0; f < function->base.n_unknown_fields; f++) {
    Onnx__AttributeProto *attribute = onnx_newer_message(
        &function->base.unknown_fields[f], FUNCTION_ATTRIBUTE_PROTO_TAG, &onnx__attribute_proto__descriptor);
    if (attribute && attribute->name && strcmp(attribute->name, name) == 0) {
      array_reserve((void **)&reader->messages, &reader->messages_capacity, reader->n_messages,
                    sizeof *reader->messages);
      reader->messages[reader->n_messages++] = attribute;
      return attribute;
    }
    if (attribute)
      onnx__attribute_proto__free_unpacked(attribute, NULL);
  }
  return NULL;
}

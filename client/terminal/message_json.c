/* A message as JSON, by its descriptor alone: a field that is new needs no code. */
#include "client/terminal/message_json.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "training.pb-c.h"

/* NAME_MAX_BYTES: of an enum's value. */
enum { DEPTH_MAX = 64, NAME_MAX_BYTES = 64 };

static json_t *json_of(const ProtobufCMessage *message, int depth);
static bool is_there(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
static json_t *json_repeated(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             int depth);
static json_t *json_value(const ProtobufCFieldDescriptor *field, const void *value, int depth);

json_t *message_json(const ProtobufCMessage *message) {
  return json_of(message, 0);
}

static json_t *json_of(const ProtobufCMessage *message, int depth) {
  const ProtobufCMessageDescriptor *type = message->descriptor;
  json_t *object = depth < DEPTH_MAX ? json_object() : json_null();
  for (unsigned i = 0; i < type->n_fields && depth < DEPTH_MAX; i++) {
    const ProtobufCFieldDescriptor *field = &type->fields[i];
    const void *value = (const char *)message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
      json_object_set_new(object, field->name, json_repeated(message, field, depth));
    else if (is_there(message, field))
      json_object_set_new(object, field->name, json_value(field, value, depth));
  }
  return object;
}

/* Of a oneof the member that is set. What is optional says so by a flag or by its pointer. */
static bool is_there(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
  const char *quantifier = (const char *)message + field->quantifier_offset;
  bool is_pointed_to = field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING;
  if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && *(const uint32_t *)quantifier != field->id)
    return false;
  if (is_pointed_to)
    return *(const void *const *)((const char *)message + field->offset) != NULL;
  return field->label != PROTOBUF_C_LABEL_OPTIONAL || (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
         *(const protobuf_c_boolean *)quantifier;
}

/* The name of an element that its list is keyed by: of a map's entry, and of a metric. NULL: it is a list. */
static const ProtobufCFieldDescriptor *key_of(const ProtobufCMessageDescriptor *type) {
  const ProtobufCFieldDescriptor *key = type->fields;
  bool is_entry = type->n_fields == 2 && strcmp(key[0].name, "key") == 0 && strcmp(key[1].name, "value") == 0;
  return (is_entry || type == &weir__metric_value__descriptor) && key->type == PROTOBUF_C_TYPE_STRING ? key
                                                                                                      : NULL;
}

/* Elements with a key and a value as an object. */
static json_t *json_keyed(const ProtobufCMessage *const *entries, size_t n, int depth) {
  json_t *object = json_object();
  for (size_t i = 0; i < n; i++) {
    const ProtobufCFieldDescriptor *fields = entries[i]->descriptor->fields;
    const char *key = *(const char *const *)((const char *)entries[i] + fields[0].offset);
    if (key && is_there(entries[i], &fields[1]))
      json_object_set_new(object, key,
                          json_value(&fields[1], (const char *)entries[i] + fields[1].offset, depth));
  }
  return object;
}

static size_t element_bytes(ProtobufCType type) {
  switch (type) {
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_FIXED64:
  case PROTOBUF_C_TYPE_DOUBLE:
    return sizeof(uint64_t);
  case PROTOBUF_C_TYPE_BOOL:
    return sizeof(protobuf_c_boolean);
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_MESSAGE:
    return sizeof(void *);
  case PROTOBUF_C_TYPE_BYTES:
    return sizeof(ProtobufCBinaryData);
  default:
    return sizeof(uint32_t);
  }
}

static json_t *json_repeated(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             int depth) {
  size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
  const char *elements = *(const char *const *)((const char *)message + field->offset);
  json_t *list;
  if (field->type == PROTOBUF_C_TYPE_MESSAGE && key_of(field->descriptor))
    return json_keyed((const ProtobufCMessage *const *)(const void *)elements, n, depth + 1);
  list = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(list, json_value(field, elements + i * element_bytes(field->type), depth));
  return list;
}

static json_t *json_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_unsigned(uint64_t value) {
  return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

static json_t *json_text(const char *text) {
  json_t *json = json_string(text);
  return json ? json : json_null(); /* not UTF-8 */
}

static json_t *json_hex(const ProtobufCBinaryData *bytes) {
  char *text = mem_new(2 * bytes->len + 1);
  json_t *json;
  for (size_t i = 0; i < bytes->len; i++) {
    text[2 * i] = "0123456789abcdef"[bytes->data[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[bytes->data[i] & 15];
  }
  json = json_string(text);
  free(text);
  return json;
}

static json_t *json_enum(const ProtobufCEnumDescriptor *type, int value) {
  const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(type, value);
  char lower[NAME_MAX_BYTES] = "unknown";
  for (size_t i = 0; known && i < sizeof lower - 1 && (i == 0 || lower[i - 1]); i++)
    lower[i] = (char)tolower((unsigned char)known->name[i]);
  return json_string(lower);
}

static json_t *json_value(const ProtobufCFieldDescriptor *field, const void *value, int depth) {
  switch (field->type) {
  case PROTOBUF_C_TYPE_INT32:
  case PROTOBUF_C_TYPE_SINT32:
  case PROTOBUF_C_TYPE_SFIXED32:
    return json_integer(*(const int32_t *)value);
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_SFIXED64:
    return json_integer(*(const int64_t *)value);
  case PROTOBUF_C_TYPE_UINT32:
  case PROTOBUF_C_TYPE_FIXED32:
    return json_integer(*(const uint32_t *)value);
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_FIXED64:
    return json_unsigned(*(const uint64_t *)value);
  case PROTOBUF_C_TYPE_FLOAT:
    return json_number((double)*(const float *)value);
  case PROTOBUF_C_TYPE_DOUBLE:
    return json_number(*(const double *)value);
  case PROTOBUF_C_TYPE_BOOL:
    return json_boolean(*(const protobuf_c_boolean *)value);
  case PROTOBUF_C_TYPE_ENUM:
    return json_enum(field->descriptor, *(const int *)value);
  case PROTOBUF_C_TYPE_STRING:
    return json_text(*(const char *const *)value);
  case PROTOBUF_C_TYPE_BYTES:
    return json_hex(value);
  case PROTOBUF_C_TYPE_MESSAGE:
    return json_of(*(const ProtobufCMessage *const *)value, depth + 1);
  }
  return json_null();
}

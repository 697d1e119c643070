/* By the message's descriptor, so that a field that is new needs no code. */
#include "client/ui/request_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/base/text.h"

enum { DEPTH_MAX = 8 };

/* Where a message is filled. */
struct fill {
  struct arena *arena;
  struct err *err;
  int depth;
};

static int fill_message(struct fill *fill, const ProtobufCMessageDescriptor *type, const json_t *object,
                        ProtobufCMessage **out);
static int set_field(struct fill *fill, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     const json_t *json);
static int set_list(struct fill *fill, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                    const json_t *json);
static int set_value(struct fill *fill, const ProtobufCFieldDescriptor *field, const json_t *json, void *at);

int request_from_json(const ProtobufCMessageDescriptor *type, const json_t *object, struct arena *arena,
                      ProtobufCMessage **out, struct err *err) {
  return fill_message(&(struct fill){.arena = arena, .err = err}, type, object, out);
}

static int fill_message(struct fill *fill, const ProtobufCMessageDescriptor *type, const json_t *object,
                        ProtobufCMessage **out) {
  const char *name;
  json_t *value;
  if (!json_is_object(object) || fill->depth >= DEPTH_MAX)
    return err_set(fill->err, ERR_INVALID, "a %s is written as an object", type->short_name);
  *out = arena_new(fill->arena, type->sizeof_message);
  type->message_init(*out);
  fill->depth++;
  json_object_foreach((json_t *)object, name, value) {
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(type, name);
    if (!field)
      return err_set(fill->err, ERR_INVALID, "a %s has no field '%.60s'", type->short_name, name);
    if (set_field(fill, *out, field, value))
      return fill->err->code;
  }
  fill->depth--;
  return 0;
}

static int set_field(struct fill *fill, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     const json_t *json) {
  bool is_pointed_to = field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING;
  if (field->label == PROTOBUF_C_LABEL_REPEATED)
    return set_list(fill, message, field, json);
  if (set_value(fill, field, json, (char *)message + field->offset))
    return fill->err->code;
  if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointed_to)
    *(protobuf_c_boolean *)((char *)message + field->quantifier_offset) = 1;
  return 0;
}

static int set_list(struct fill *fill, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                    const json_t *json) {
  size_t n = json_array_size(json), element = message_value_size(field);
  char *values;
  if (!json_is_array(json))
    return err_set(fill->err, ERR_INVALID, "%s: this is a list", field->name);
  values = arena_new(fill->arena, (n + 1) * element);
  for (size_t i = 0; i < n; i++)
    if (set_value(fill, field, json_array_get(json, i), values + i * element))
      return fill->err->code;
  *(void **)((char *)message + field->offset) = values;
  *(size_t *)((char *)message + field->quantifier_offset) = n;
  return 0;
}

static bool read_unsigned(const json_t *json, uint64_t most, uint64_t *out) {
  const char *text = json_string_value(json);
  char *end;
  if (json_is_integer(json) && json_integer_value(json) >= 0)
    *out = (uint64_t)json_integer_value(json);
  else if (!text || *text < '0' || *text > '9')
    return false;
  else {
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno || *end)
      return false;
  }
  return *out <= most;
}

static bool read_double(const json_t *json, double *out) {
  const char *text = json_string_value(json);
  char *end;
  if (!text) {
    *out = json_number_value(json);
    return json_is_number(json);
  }
  *out = strtod(text, &end);
  return *text && !*end && isfinite(*out);
}

static bool read_bool(const json_t *json, protobuf_c_boolean *out) {
  const char *text = json_string_value(json);
  *out = json_is_true(json) || (text && strcmp(text, "true") == 0);
  return json_is_boolean(json) || (text && (*out || strcmp(text, "false") == 0));
}

static bool read_text(struct fill *fill, const json_t *json, char **out) {
  if (!json_is_string(json) || strlen(json_string_value(json)) != json_string_length(json) ||
      !text_is_clean(json_string_value(json)))
    return false;
  *out = arena_strdup(fill->arena, json_string_value(json));
  return true;
}

/* The kinds that requests have. */
static int set_value(struct fill *fill, const ProtobufCFieldDescriptor *field, const json_t *json, void *at) {
  uint64_t number = 0;
  bool is_read = false;
  switch (field->type) {
  case PROTOBUF_C_TYPE_UINT32:
    is_read = read_unsigned(json, UINT32_MAX, &number);
    *(uint32_t *)at = (uint32_t)number;
    break;
  case PROTOBUF_C_TYPE_UINT64:
    is_read = read_unsigned(json, UINT64_MAX, at);
    break;
  case PROTOBUF_C_TYPE_DOUBLE:
    is_read = read_double(json, at);
    break;
  case PROTOBUF_C_TYPE_BOOL:
    is_read = read_bool(json, at);
    break;
  case PROTOBUF_C_TYPE_STRING:
    is_read = read_text(fill, json, at);
    break;
  case PROTOBUF_C_TYPE_MESSAGE:
    return fill_message(fill, field->descriptor, json, at);
  default:
    break;
  }
  return is_read ? 0 : err_set(fill->err, ERR_INVALID, "%s: there is no such value", field->name);
}

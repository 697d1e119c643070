/* A spec as text, through the descriptors of its messages. */
#include "common/specs/spec_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/specs/yaml_text.h"

static void write_message(FILE *out, const void *message);
static void write_field(FILE *out, const ProtobufCFieldDescriptor *field, const void *message);
static void write_list(FILE *out, const ProtobufCFieldDescriptor *field, const void *message);
static void write_map(FILE *out, const ProtobufCFieldDescriptor *field, const void *message);
static void write_value(FILE *out, const ProtobufCFieldDescriptor *field, const void *value);

char *spec_text(const Weir__RunSpec *spec) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  write_message(out, spec);
  CHECK(fclose(out) == 0);
  return text;
}

/* A text that is absent is the default's own. */
static bool is_given(const ProtobufCFieldDescriptor *field, const void *message) {
  const char *value = (const char *)message + field->offset;
  const char *quantifier = (const char *)message + field->quantifier_offset;
  if (field->label == PROTOBUF_C_LABEL_REPEATED)
    return *(const size_t *)quantifier > 0;
  if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
    return *(const void *const *)value && *(const void *const *)value != field->default_value;
  return *(const protobuf_c_boolean *)quantifier;
}

static void write_message(FILE *out, const void *message) {
  const ProtobufCMessageDescriptor *type = ((const ProtobufCMessage *)message)->descriptor;
  const char *separator = "";
  fputc('{', out);
  for (unsigned i = 0; i < type->n_fields; i++) {
    if (!is_given(&type->fields[i], message))
      continue;
    fprintf(out, "%s%s: ", separator, type->fields[i].name);
    write_field(out, &type->fields[i], message);
    separator = ", ";
  }
  fputc('}', out);
}

static bool is_map(const ProtobufCFieldDescriptor *field) {
  const ProtobufCMessageDescriptor *entry = field->descriptor;
  return field->type == PROTOBUF_C_TYPE_MESSAGE && entry->n_fields == 2 &&
         strcmp(entry->fields[0].name, "key") == 0 && strcmp(entry->fields[1].name, "value") == 0;
}

static void write_field(FILE *out, const ProtobufCFieldDescriptor *field, const void *message) {
  if (field->label != PROTOBUF_C_LABEL_REPEATED)
    write_value(out, field, (const char *)message + field->offset);
  else if (is_map(field))
    write_map(out, field, message);
  else
    write_list(out, field, message);
}

static void write_list(FILE *out, const ProtobufCFieldDescriptor *field, const void *message) {
  size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
  const char *items = *(const char *const *)((const char *)message + field->offset);
  fputc('[', out);
  for (size_t i = 0; i < n; i++) {
    fputs(i ? ", " : "", out);
    write_value(out, field, items + i * message_value_size(field));
  }
  fputc(']', out);
}

/* A value that is a list is a message that holds nothing else. */
static void write_map(FILE *out, const ProtobufCFieldDescriptor *field, const void *message) {
  size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
  const char *const *entries = *(const char *const *const *)((const char *)message + field->offset);
  const ProtobufCMessageDescriptor *entry = field->descriptor;
  const ProtobufCFieldDescriptor *key = &entry->fields[0], *value = &entry->fields[1];
  const ProtobufCMessageDescriptor *holder = value->descriptor; /* of a list; of other values not a message */
  fputc('{', out);
  for (size_t i = 0; i < n; i++) {
    const void *at = entries[i] + value->offset;
    fputs(i ? ", " : "", out);
    write_value(out, key, entries[i] + key->offset);
    fputs(": ", out);
    if (value->type == PROTOBUF_C_TYPE_MESSAGE)
      write_list(out, &holder->fields[0], *(const void *const *)at);
    else
      write_value(out, value, at);
  }
  fputc('}', out);
}

static void write_value(FILE *out, const ProtobufCFieldDescriptor *field, const void *value) {
  const struct spec_word *word = spec_word_of(field);
  switch (field->type) {
  case PROTOBUF_C_TYPE_UINT64:
    fprintf(out, "%" PRIu64, *(const uint64_t *)value);
    break;
  case PROTOBUF_C_TYPE_INT64:
    fprintf(out, "%" PRId64, *(const int64_t *)value);
    break;
  case PROTOBUF_C_TYPE_UINT32:
    if (word && *(const uint32_t *)value == word->number)
      fputs(word->word, out);
    else
      fprintf(out, "%" PRIu32, *(const uint32_t *)value);
    break;
  case PROTOBUF_C_TYPE_BOOL:
    fputs(*(const protobuf_c_boolean *)value ? "true" : "false", out);
    break;
  case PROTOBUF_C_TYPE_DOUBLE:
    fprintf(out, "%.17g", *(const double *)value);
    break;
  case PROTOBUF_C_TYPE_STRING:
    yaml_write(out, *(const char *const *)value);
    break;
  case PROTOBUF_C_TYPE_MESSAGE:
    write_message(out, *(const void *const *)value);
    break;
  default:
    CHECK(!"a field type that specs do not have");
  }
}

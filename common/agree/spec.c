/* Specs: YAML to a message. The message's descriptor is the schema: nothing here knows a key by name, but the
   reader of mappings. */
#include "common/agree/spec_document.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "common/base/nearest.h"

/* LEVELS_MAX: of messages in messages. WEIGHT_MAX: what a spec may come to when its aliases are written out,
   in list entries and letters; without aliases none is heavier than its text. */
enum { FIELDS_MAX = 64, PATH_SIZE = 256, LEVELS_MAX = 16, WEIGHT_MAX = LIMIT_SPEC_BYTES };

struct reader {
  struct spec_document *document;
  int level;
  size_t weight;
  struct err *err;
};

static int read_repeated(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                         ProtobufCMessage *message, const char *path);
static int read_message(struct reader *reader, yaml_node_t *node, ProtobufCMessage *message,
                        const char *path);

static int reader_fail(struct reader *reader, const yaml_node_t *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int reader_fail(struct reader *reader, const yaml_node_t *node, const char *format, ...) {
  char text[1024], place[SPEC_PLACE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return err_set(reader->err, ERR_INVALID, "%s: %s",
                 spec_document_place(reader->document, node->start_mark.line, place), text);
}

/* Of what is about to be allocated. */
static int add_weight(struct reader *reader, const yaml_node_t *node, size_t weight, const char *path) {
  if (weight > WEIGHT_MAX - reader->weight)
    return reader_fail(reader, node, "%s: with its aliases written out, the spec is too long", path);
  reader->weight += weight;
  return 0;
}

static void path_join(char *out, size_t size, const char *path, const char *key) {
  snprintf(out, size, "%s%s%s", path, *path ? "." : "", key);
}

static const char *scalar_text(const yaml_node_t *node) {
  return (const char *)node->data.scalar.value;
}

/* The whole text as a number; false if it is none or does not fit. */
static bool text_to_double(const char *text, double *out) {
  char *end;
  errno = 0;
  *out = strtod(text, &end);
  return end != text && *end == 0 && errno != ERANGE && isfinite(*out);
}

static bool text_to_u64(const char *text, uint64_t most, uint64_t *out) {
  char *end;
  if (text[0] < '0' || text[0] > '9')
    return false;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return *end == 0 && errno != ERANGE && *out <= most;
}

static bool text_to_i64(const char *text, int64_t *out) {
  uint64_t size, most = (uint64_t)INT64_MAX + (text[0] == '-');
  if (!text_to_u64(text + (text[0] == '-'), most, &size))
    return false;
  *out = (int64_t)(text[0] == '-' ? 0 - size : size);
  return true;
}

static int read_u32(struct reader *reader, const yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                    uint32_t *at, const char *path) {
  const struct spec_word *word = spec_word_of(field);
  const char *text = scalar_text(node);
  uint64_t whole = 0;
  bool is_word = word && strcmp(text, word->word) == 0;
  bool is_number = !is_word && text_to_u64(text, UINT32_MAX, &whole);
  if (word && !is_word && (!is_number || whole == word->number))
    return reader_fail(reader, node, "%s: '%s' is neither a whole number from %u to %u nor '%s'", path, text,
                       word->number + 1, UINT32_MAX, word->word);
  if (!is_word && !is_number)
    return reader_fail(reader, node, "%s: '%s' is not a whole number from 0 to %u", path, text, UINT32_MAX);
  *at = is_word ? word->number : (uint32_t)whole;
  return 0;
}

/* Writes one scalar to `at`, which has the field's C type. */
static int read_scalar(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                       void *at, const char *path) {
  const char *text;
  uint64_t whole = 0;
  if (node->type != YAML_SCALAR_NODE)
    return reader_fail(reader, node, "%s: a single value is wanted here", path);
  text = scalar_text(node);
  switch (field->type) {
  case PROTOBUF_C_TYPE_STRING:
    if (strlen(text) != node->data.scalar.length)
      return reader_fail(reader, node, "%s: the text holds a NUL character", path);
    if (add_weight(reader, node, strlen(text), path))
      return reader->err->code;
    *(char **)at = mem_strdup(text);
    return 0;
  case PROTOBUF_C_TYPE_DOUBLE:
    return text_to_double(text, at) ? 0 : reader_fail(reader, node, "%s: '%s' is not a number", path, text);
  case PROTOBUF_C_TYPE_BOOL:
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
      return reader_fail(reader, node, "%s: '%s' is neither true nor false", path, text);
    *(protobuf_c_boolean *)at = text[0] == 't';
    return 0;
  case PROTOBUF_C_TYPE_UINT32:
    return read_u32(reader, node, field, at, path);
  case PROTOBUF_C_TYPE_INT64:
    return text_to_i64(text, at) ? 0
                                 : reader_fail(reader, node, "%s: '%s' is not a whole number", path, text);
  case PROTOBUF_C_TYPE_UINT64:
    if (!text_to_u64(text, UINT64_MAX, &whole))
      return reader_fail(reader, node, "%s: '%s' is not a whole number", path, text);
    *(uint64_t *)at = whole;
    return 0;
  default:
    CHECK(!"a spec field has a type that YAML cannot give");
  }
  return 0;
}

static ProtobufCMessage *message_new(const ProtobufCMessageDescriptor *descriptor) {
  ProtobufCMessage *message = mem_new(descriptor->sizeof_message);
  protobuf_c_message_init(descriptor, message);
  return message;
}

/* Its first field is an entry's key in a mapping, the others are the entry's value. */
static bool is_map_entry(const ProtobufCFieldDescriptor *field) {
  const ProtobufCMessageDescriptor *message = field->descriptor;
  return field->type == PROTOBUF_C_TYPE_MESSAGE && message->n_fields >= 2 &&
         (strcmp(message->fields[0].name, "key") == 0 || strcmp(message->fields[0].name, "path") == 0);
}

/* A message that holds nothing but a mapping: in YAML the mapping itself. */
static bool is_map_holder(const ProtobufCMessageDescriptor *message) {
  return message->n_fields == 1 && message->fields[0].label == PROTOBUF_C_LABEL_REPEATED &&
         is_map_entry(&message->fields[0]);
}

/* A field that is one message. Its memory hangs in the parent before it is read, so that one free frees all.
 */
static int read_submessage(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                           void *at, const char *path) {
  const ProtobufCMessageDescriptor *type = field->descriptor;
  ProtobufCMessage *message;
  int code;
  if (reader->level == LEVELS_MAX)
    return reader_fail(reader, node, "%s: nested more than %d deep", path, LEVELS_MAX);
  message = message_new(type);
  *(ProtobufCMessage **)at = message;
  reader->level++;
  code = is_map_holder(type) ? read_repeated(reader, node, &type->fields[0], message, path)
                             : read_message(reader, node, message, path);
  reader->level--;
  return code;
}

/* The value of a map whose values are lists: a message that holds nothing but the list. */
static int read_map_list(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                         void *at, const char *path) {
  const ProtobufCMessageDescriptor *holder = field->descriptor;
  ProtobufCMessage *message = message_new(holder);
  CHECK(holder->n_fields == 1 && holder->fields[0].label == PROTOBUF_C_LABEL_REPEATED);
  *(ProtobufCMessage **)at = message;
  return read_repeated(reader, node, &holder->fields[0], message, path);
}

static int read_map_entry(struct reader *reader, const yaml_node_pair_t *pair, ProtobufCMessage *entry,
                          const char *path) {
  const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0], *value = &entry->descriptor->fields[1];
  yaml_node_t *node = yaml_document_get_node(&reader->document->yaml, pair->value);
  char *key_at = (char *)entry + key->offset, *value_at = (char *)entry + value->offset;
  char entry_path[PATH_SIZE];
  if (read_scalar(reader, yaml_document_get_node(&reader->document->yaml, pair->key), key, key_at, path))
    return reader->err->code;
  if (value->type != PROTOBUF_C_TYPE_MESSAGE)
    return read_scalar(reader, node, value, value_at, path);
  path_join(entry_path, sizeof entry_path, path, *(char **)key_at);
  return read_map_list(reader, node, value, value_at, entry_path);
}

/* An entry whose value is a message; a list stands for the message's first field but the key. */
static int read_map_message(struct reader *reader, const yaml_node_pair_t *pair, ProtobufCMessage *entry,
                            const char *path) {
  const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0], *first = key + 1;
  yaml_node_t *node = yaml_document_get_node(&reader->document->yaml, pair->value);
  char *key_at = (char *)entry + key->offset;
  char entry_path[PATH_SIZE];
  if (read_scalar(reader, yaml_document_get_node(&reader->document->yaml, pair->key), key, key_at, path))
    return reader->err->code;
  path_join(entry_path, sizeof entry_path, path, *(char **)key_at);
  return node->type == YAML_SEQUENCE_NODE ? read_repeated(reader, node, first, entry, entry_path)
                                          : read_message(reader, node, entry, entry_path);
}

static int read_map(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                    ProtobufCMessage *message, const char *path) {
  const ProtobufCMessageDescriptor *entry_descriptor = field->descriptor;
  size_t *count = (size_t *)((char *)message + field->quantifier_offset);
  void **elements = (void **)((char *)message + field->offset);
  yaml_node_pair_t *pair;
  if (node->type != YAML_MAPPING_NODE)
    return reader_fail(reader, node, "%s: a mapping is wanted here, as {key: value}", path);
  pair = node->data.mapping.pairs.start;
  if (add_weight(reader, node, (size_t)(node->data.mapping.pairs.top - pair), path))
    return reader->err->code;
  *elements = mem_new((size_t)(node->data.mapping.pairs.top - pair) * sizeof(void *));
  for (; pair < node->data.mapping.pairs.top; pair++) {
    ProtobufCMessage *entry = message_new(entry_descriptor);
    ((ProtobufCMessage **)*elements)[(*count)++] = entry;
    if (entry_descriptor->n_fields == 2 ? read_map_entry(reader, pair, entry, path)
                                        : read_map_message(reader, pair, entry, path))
      return reader->err->code;
  }
  return 0;
}

static bool is_number(const ProtobufCFieldDescriptor *field) {
  return field->type == PROTOBUF_C_TYPE_DOUBLE || field->type == PROTOBUF_C_TYPE_UINT32 ||
         field->type == PROTOBUF_C_TYPE_UINT64 || field->type == PROTOBUF_C_TYPE_INT64;
}

static int read_repeated(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                         ProtobufCMessage *message, const char *path) {
  size_t *count = (size_t *)((char *)message + field->quantifier_offset);
  void **elements = (void **)((char *)message + field->offset);
  yaml_node_item_t *item;
  if (is_map_entry(field))
    return read_map(reader, node, field, message, path);
  if (node->type == YAML_SCALAR_NODE && is_number(field)) { /* one number is a list of one */
    *elements = mem_new(8);
    *count = 1;
    return read_scalar(reader, node, field, *elements, path);
  }
  if (node->type != YAML_SEQUENCE_NODE)
    return reader_fail(reader, node, "%s: a list is wanted here, as [a, b]", path);
  item = node->data.sequence.items.start;
  if (add_weight(reader, node, (size_t)(node->data.sequence.items.top - item), path))
    return reader->err->code;
  *elements = mem_new((size_t)(node->data.sequence.items.top - item) * 8);
  for (; item < node->data.sequence.items.top; item++) {
    yaml_node_t *element = yaml_document_get_node(&reader->document->yaml, *item);
    size_t index = (*count)++;
    char *at = (char *)*elements + index * message_value_size(field);
    char entry[PATH_SIZE + 24]; /* an index has 20 digits at most */
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
      snprintf(entry, sizeof entry, "%s[%zu]", path, index);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE ? read_submessage(reader, element, field, at, entry)
                                               : read_scalar(reader, element, field, at, path))
      return reader->err->code;
  }
  return 0;
}

static int read_optional(struct reader *reader, yaml_node_t *node, const ProtobufCFieldDescriptor *field,
                         ProtobufCMessage *message, const char *path) {
  void *at = (char *)message + field->offset;
  if (field->type == PROTOBUF_C_TYPE_MESSAGE)
    return read_submessage(reader, node, field, at, path);
  if (field->type != PROTOBUF_C_TYPE_STRING)
    *(protobuf_c_boolean *)((char *)message + field->quantifier_offset) = 1;
  return read_scalar(reader, node, field, at, path);
}

static int fail_unknown_key(struct reader *reader, yaml_node_t *key,
                            const ProtobufCMessageDescriptor *descriptor, const char *path) {
  const char *names[FIELDS_MAX], *near;
  int n = 0;
  char known[768] = "";
  CHECK(descriptor->n_fields <= FIELDS_MAX);
  for (; n < (int)descriptor->n_fields; n++) {
    names[n] = descriptor->fields[n].name;
    snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", n ? ", " : "", names[n]);
  }
  near = nearest_word(scalar_text(key), names, n);
  if (near)
    return reader_fail(reader, key, "unknown key '%s' in %s: did you mean '%s'?", scalar_text(key),
                       *path ? path : "the spec", near);
  return reader_fail(reader, key, "unknown key '%s' in %s: known are %s", scalar_text(key),
                     *path ? path : "the spec", known);
}

/* A list in place of one message: the field of several, whose name is the plural, if there is one. */
static const ProtobufCFieldDescriptor *listed(const ProtobufCMessageDescriptor *type,
                                              const ProtobufCFieldDescriptor *field,
                                              const yaml_node_t *value) {
  char plural[64];
  const ProtobufCFieldDescriptor *several;
  if (value->type != YAML_SEQUENCE_NODE || field->type != PROTOBUF_C_TYPE_MESSAGE ||
      field->label == PROTOBUF_C_LABEL_REPEATED)
    return field;
  snprintf(plural, sizeof plural, "%ss", field->name);
  several = protobuf_c_message_descriptor_get_field_by_name(type, plural);
  return several && several->descriptor == field->descriptor ? several : field;
}

/* A list of which one message, or several, are to be given. */
static bool is_empty_list(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                          const yaml_node_t *value) {
  char single[64];
  const ProtobufCFieldDescriptor *one;
  if (value->type != YAML_SEQUENCE_NODE || value->data.sequence.items.top > value->data.sequence.items.start)
    return false;
  snprintf(single, sizeof single, "%.*s", (int)strlen(field->name) - 1, field->name);
  one = protobuf_c_message_descriptor_get_field_by_name(type, single);
  return one && one->type == PROTOBUF_C_TYPE_MESSAGE && one->descriptor == field->descriptor;
}

static int read_message(struct reader *reader, yaml_node_t *node, ProtobufCMessage *message,
                        const char *path) {
  /* of an entry of a mapping the key is there */
  bool seen[FIELDS_MAX] = {strcmp(message->descriptor->fields[0].name, "path") == 0};
  yaml_node_pair_t *pair;
  if (node->type != YAML_MAPPING_NODE)
    return reader_fail(reader, node, "%s: keys and values are wanted here", *path ? path : "the spec");
  for (pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
    yaml_node_t *key = yaml_document_get_node(&reader->document->yaml, pair->key);
    yaml_node_t *value = yaml_document_get_node(&reader->document->yaml, pair->value);
    const ProtobufCFieldDescriptor *field;
    char sub[PATH_SIZE];
    int code;
    if (key->type != YAML_SCALAR_NODE)
      return reader_fail(reader, key, "%s: a key must be a word", *path ? path : "the spec");
    field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, scalar_text(key));
    if (!field)
      return fail_unknown_key(reader, key, message->descriptor, path);
    path_join(sub, sizeof sub, path, field->name);
    field = listed(message->descriptor, field, value);
    if (is_empty_list(message->descriptor, field, value))
      return reader_fail(reader, key, "%s: the list is empty", sub);
    if (seen[field - message->descriptor->fields])
      return reader_fail(reader, key, "%s is given twice", sub);
    seen[field - message->descriptor->fields] = true;
    code = field->label == PROTOBUF_C_LABEL_REPEATED ? read_repeated(reader, value, field, message, sub)
                                                     : read_optional(reader, value, field, message, sub);
    if (code)
      return code;
  }
  return 0;
}

int spec_document_read(struct spec_document *document, const ProtobufCMessageDescriptor *type,
                       ProtobufCMessage **out, struct err *err) {
  struct reader reader = {.document = document, .err = err};
  *out = message_new(type);
  if (read_message(&reader, yaml_document_get_root_node(&document->yaml), *out, "") == 0)
    return 0;
  message_free(*out);
  *out = NULL;
  return err->code;
}

static int document_read(struct spec_document *document, Weir__RunSpec **out, struct err *err) {
  ProtobufCMessage *message;
  int code = spec_document_read(document, &weir__run_spec__descriptor, &message, err);
  *out = (Weir__RunSpec *)message;
  spec_document_fini(document);
  return code;
}

int spec_read_text(const struct spec_source *source, const char *text, size_t size, Weir__RunSpec **out,
                   struct err *err) {
  struct spec_document document;
  *out = NULL;
  return spec_document_load(source, text, size, &document, err) ? (int)err->code
                                                                : document_read(&document, out, err);
}

int spec_read(const char *file, const char *text, size_t size, Weir__RunSpec **out, struct err *err) {
  return spec_read_text(&(struct spec_source){.file = file}, text, size, out, err);
}

int spec_read_source(const struct spec_source *source, Weir__RunSpec **out, struct err *err) {
  struct spec_document document;
  *out = NULL;
  return spec_document_open(source, &document, err) ? (int)err->code : document_read(&document, out, err);
}

int spec_read_file(const char *path, Weir__RunSpec **out, struct err *err) {
  return spec_read_source(&(struct spec_source){.file = path}, out, err);
}

void spec_free(Weir__RunSpec *spec) {
  if (spec)
    protobuf_c_message_free_unpacked(&spec->base, NULL);
}

Weir__RunSpec *spec_copy(const Weir__RunSpec *spec) {
  size_t size = weir__run_spec__get_packed_size(spec);
  uint8_t *packed = mem_new(size);
  Weir__RunSpec *copy;
  weir__run_spec__pack(spec, packed);
  copy = weir__run_spec__unpack(NULL, size, packed);
  free(packed);
  CHECK(copy);
  return copy;
}

const char *spec_library_version(void) {
  return yaml_get_version_string();
}

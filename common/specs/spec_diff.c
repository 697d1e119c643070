/* Do two specs ask for the same run, or the same sweep? */
#include "common/specs/spec_diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/err.h"
#include "common/base/message.h"

enum { PATH_BYTES = 256, VALUE_BYTES = 256 };

/* The place that is compared, and where the finding goes. */
struct comparison {
  char path[PATH_BYTES];
  bool (*may_differ)(const char *path);
  char *text;
  size_t size;
};

static bool message_differs(struct comparison *at, const void *now, const void *was);
static bool field_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                          const void *was);
static bool list_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                         const void *was);
static bool value_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                          const void *was);
static void value_text(const ProtobufCFieldDescriptor *field, const void *value, char text[VALUE_BYTES]);

bool spec_differs(const Weir__RunSpec *now, const Weir__RunSpec *was, bool (*may_differ)(const char *path),
                  char *text, size_t size) {
  struct comparison at = {.may_differ = may_differ, .text = text, .size = size};
  return message_differs(&at, now, was);
}

static bool is_compared_otherwise(const char *path) {
  return strcmp(path, "budget") == 0 || strcmp(path, "spec") == 0 || strcmp(path, "space") == 0;
}

static bool has_dimension(const Weir__SweepSpec *spec, const char *path) {
  for (size_t i = 0; i < spec->n_space; i++)
    if (strcmp(spec->space[i]->path, path) == 0)
      return true;
  return false;
}

/* The dimensions are the same, in the same order: a searcher's draws go by it. */
static bool space_differs(struct comparison *at, const Weir__SweepSpec *now, const Weir__SweepSpec *was) {
  for (size_t i = 0; i < now->n_space; i++)
    if (!has_dimension(was, now->space[i]->path)) {
      snprintf(at->text, at->size, "space.%s is given and was not", now->space[i]->path);
      return true;
    }
  for (size_t i = 0; i < was->n_space; i++)
    if (!has_dimension(now, was->space[i]->path)) {
      snprintf(at->text, at->size, "space.%s is not given and was", was->space[i]->path);
      return true;
    }
  for (size_t i = 0; i < now->n_space; i++) {
    const char *path = now->space[i]->path;
    if (strcmp(path, was->space[i]->path) != 0) {
      snprintf(at->text, at->size, "space.%s is entry %zu, where %s was", path, i + 1, was->space[i]->path);
      return true;
    }
    snprintf(at->path, sizeof at->path, "space.%s", path);
    if (message_differs(at, now->space[i], was->space[i]))
      return true;
  }
  return false;
}

bool sweep_spec_differs(const Weir__SweepSpec *now, const Weir__SweepSpec *was, char *text, size_t size) {
  struct comparison at = {.may_differ = is_compared_otherwise, .text = text, .size = size};
  return message_differs(&at, now, was) || space_differs(&at, now, was);
}

static bool message_differs(struct comparison *at, const void *now, const void *was) {
  const ProtobufCMessageDescriptor *type = ((const ProtobufCMessage *)now)->descriptor;
  for (unsigned i = 0; i < type->n_fields; i++) {
    size_t length = strlen(at->path);
    snprintf(at->path + length, sizeof at->path - length, "%s%s", length > 0 ? "." : "",
             type->fields[i].name);
    if (field_differs(at, &type->fields[i], now, was))
      return true;
    at->path[length] = '\0';
  }
  return false;
}

/* protobuf-c fills scalars that are absent with the message's defaults. NULL: there is none to fill in, and
   what is meant depends on other fields. */
static const void *field_value(const ProtobufCFieldDescriptor *field, const void *message) {
  const char *value = (const char *)message + field->offset;
  if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
    return *(void *const *)value ? value : NULL;
  if (field->default_value || *(const protobuf_c_boolean *)((const char *)message + field->quantifier_offset))
    return value;
  return NULL;
}

static bool field_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                          const void *was) {
  if (at->may_differ && at->may_differ(at->path))
    return false;
  if (field->label == PROTOBUF_C_LABEL_REPEATED)
    return list_differs(at, field, now, was);
  return value_differs(at, field, field_value(field, now), field_value(field, was));
}

static bool list_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                         const void *was) {
  size_t n_now = *(const size_t *)((const char *)now + field->quantifier_offset);
  size_t n_was = *(const size_t *)((const char *)was + field->quantifier_offset);
  const char *list_now = *(char *const *)((const char *)now + field->offset);
  const char *list_was = *(char *const *)((const char *)was + field->offset);
  size_t size = message_value_size(field), length = strlen(at->path);
  if (n_now != n_was) {
    snprintf(at->text, at->size, "%s has %zu entries and had %zu", at->path, n_now, n_was);
    return true;
  }
  for (size_t i = 0; i < n_now; i++) {
    snprintf(at->path + length, sizeof at->path - length, "[%zu]", i);
    if (value_differs(at, field, list_now + i * size, list_was + i * size))
      return true;
    at->path[length] = '\0';
  }
  return false;
}

static bool value_differs(struct comparison *at, const ProtobufCFieldDescriptor *field, const void *now,
                          const void *was) {
  char text_now[VALUE_BYTES], text_was[VALUE_BYTES];
  bool is_same = !now && !was;
  if (now && was && field->type == PROTOBUF_C_TYPE_MESSAGE)
    return message_differs(at, *(void *const *)now, *(void *const *)was);
  if (now && was && field->type == PROTOBUF_C_TYPE_STRING)
    is_same = strcmp(*(char *const *)now, *(char *const *)was) == 0;
  else if (now && was)
    is_same = memcmp(now, was, message_value_size(field)) == 0;
  if (is_same)
    return false;
  value_text(field, now, text_now);
  value_text(field, was, text_was);
  snprintf(at->text, at->size, "%s is %s and was %s", at->path, text_now, text_was);
  return true;
}

/* NULL: not given. Doubles with all their digits; a text too long to show is told by its first letters. */
static void value_text(const ProtobufCFieldDescriptor *field, const void *value, char text[VALUE_BYTES]) {
  const struct spec_word *word = spec_word_of(field);
  uint32_t number;
  if (!value) {
    snprintf(text, VALUE_BYTES, "not given");
    return;
  }
  switch (field->type) {
  case PROTOBUF_C_TYPE_UINT64:
    snprintf(text, VALUE_BYTES, "%" PRIu64, *(const uint64_t *)value);
    break;
  case PROTOBUF_C_TYPE_INT64:
    snprintf(text, VALUE_BYTES, "%" PRId64, *(const int64_t *)value);
    break;
  case PROTOBUF_C_TYPE_UINT32:
    number = *(const uint32_t *)value;
    snprintf(text, VALUE_BYTES, "%" PRIu32, number);
    if (word && number == word->number)
      snprintf(text, VALUE_BYTES, "%s", word->word);
    break;
  case PROTOBUF_C_TYPE_BOOL:
    snprintf(text, VALUE_BYTES, "%s", *(const protobuf_c_boolean *)value ? "true" : "false");
    break;
  case PROTOBUF_C_TYPE_DOUBLE:
    snprintf(text, VALUE_BYTES, "%.17g", *(const double *)value);
    break;
  case PROTOBUF_C_TYPE_STRING:
    snprintf(text, VALUE_BYTES, "'%s'", *(const char *const *)value);
    break;
  case PROTOBUF_C_TYPE_MESSAGE:
    snprintf(text, VALUE_BYTES, "given");
    break;
  default:
    CHECK(!"a field type that specs do not have");
  }
}

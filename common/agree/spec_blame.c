/* The line of a spec that an error is about. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_document.h"

/* A step of a path like "train.optimizer.groups[2].lr": a key, or an index. */
struct path_step {
  const char *key;
  size_t length; /* 0: the step is an index */
  size_t index;
};

static const char *path_next(const char *path, struct path_step *step);
static yaml_node_t *blame_descend(yaml_document_t *document, const yaml_node_t *node,
                                  const struct path_step *step, size_t *line);
static size_t line_of(const char *path, yaml_document_t *document);
static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *message,
                                                const struct path_step *step);

bool spec_is_to_blame(const struct err *err) {
  struct path_step step;
  const char *rest = path_next(err->text, &step);
  const ProtobufCFieldDescriptor *part = rest ? field_of(&weir__run_spec__descriptor, &step) : NULL;
  return part && part->type == PROTOBUF_C_TYPE_MESSAGE && *rest == '.' && path_next(rest, &step) &&
         field_of(part->descriptor, &step);
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *message,
                                                const struct path_step *step) {
  for (unsigned f = 0; f < message->n_fields; f++)
    if (strlen(message->fields[f].name) == step->length &&
        strncmp(message->fields[f].name, step->key, step->length) == 0)
      return &message->fields[f];
  return NULL;
}

int spec_blame(const char *file, struct err *err) {
  struct err ignored;
  yaml_document_t document;
  size_t size, line = 0;
  char *text = spec_text(file, &size, &ignored);
  if (text && spec_document_load(file, text, size, &document, &ignored) == ERR_OK) {
    line = line_of(err->text, &document);
    yaml_document_delete(&document);
  }
  free(text);
  return line ? err_prefix(err, "%s:%zu", file, line) : err_prefix(err, "%s", file);
}

/* From 1; 0: the document has not even the path's first key. */
static size_t line_of(const char *path, yaml_document_t *document) {
  yaml_node_t *node = yaml_document_get_root_node(document);
  struct path_step step;
  size_t line = 0;
  while (node && (path = path_next(path, &step)))
    node = blame_descend(document, node, &step, &line);
  return line;
}

/* The rest of the path behind its first step; NULL where it has none. */
static const char *path_next(const char *path, struct path_step *step) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  char *end;
  *step = (struct path_step){0};
  if (*path == '[') {
    step->index = strtoul(path + 1, &end, 10);
    return *end == ']' ? end + 1 : NULL;
  }
  step->key = path + (*path == '.');
  step->length = strspn(step->key, letters);
  return step->length ? step->key + step->length : NULL;
}

/* The value at a step, and the line of its key; NULL, and *line as it was, where there is none. */
static yaml_node_t *blame_descend(yaml_document_t *document, const yaml_node_t *node,
                                  const struct path_step *step, size_t *line) {
  yaml_node_t *found = NULL;
  if (node->type == YAML_MAPPING_NODE && step->length)
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
      yaml_node_t *key = yaml_document_get_node(document, pair->key);
      if (key->type != YAML_SCALAR_NODE || key->data.scalar.length != step->length ||
          memcmp(key->data.scalar.value, step->key, step->length) != 0)
        continue;
      *line = key->start_mark.line + 1;
      found = yaml_document_get_node(document, pair->value);
    }
  if (node->type == YAML_SEQUENCE_NODE && !step->length &&
      step->index < (size_t)(node->data.sequence.items.top - node->data.sequence.items.start)) {
    found = yaml_document_get_node(document, node->data.sequence.items.start[step->index]);
    *line = found->start_mark.line + 1;
  }
  return found;
}

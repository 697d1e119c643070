/* The line of a spec that an error is about. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec_document.h"

static bool is_given(const char *path, struct spec_document *document, size_t *line);
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

int spec_blame(const struct spec_source *source, struct err *err) {
  struct err ignored = ERR_NONE;
  struct spec_document document;
  char place[SPEC_PLACE_MAX];
  size_t line;
  if (spec_document_open(source, &document, &ignored))
    return err_prefix(err, "%s", source->file);
  if (is_given(err->text, &document, &line))
    err_prefix(err, "%s", spec_document_place(&document, line, place));
  else
    err_prefix(err, "%s", source->file);
  spec_document_fini(&document);
  return err->code;
}

/* As spec_entry_find at the path's next step; where there is no such key, at the key that has dots in it and
   begins the rest of the path. Moves the path behind it. */
static bool find_next(yaml_document_t *document, int in, const char **path, struct spec_entry *entry) {
  const yaml_node_t *node = yaml_document_get_node(document, in);
  const char *rest = *path + (**path == '.');
  struct path_step step;
  *path = path_next(*path, &step);
  if (*path && spec_entry_find(document, in, &step, entry))
    return true;
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
       node->type == YAML_MAPPING_NODE && pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(document, pair->key);
    step = (struct path_step){.key = rest, .length = key->data.scalar.length};
    if (key->type == YAML_SCALAR_NODE && step.length > 0 &&
        strncmp(rest, (char *)key->data.scalar.value, step.length) == 0 &&
        strchr(".:[ ", rest[step.length]) && spec_entry_find(document, in, &step, entry)) {
      *path = rest + step.length;
      return true;
    }
  }
  return false;
}

/* Whether the document has at least the path's first key; the line of the last that it has, from 0. */
static bool is_given(const char *path, struct spec_document *document, size_t *line) {
  struct spec_entry entry;
  bool is_any = false;
  for (int in = SPEC_ROOT; find_next(&document->yaml, in, &path, &entry); in = *entry.value) {
    *line =
        yaml_document_get_node(&document->yaml, entry.pair ? entry.pair->key : *entry.value)->start_mark.line;
    is_any = true;
  }
  return is_any;
}

const char *path_next(const char *path, struct path_step *step) {
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

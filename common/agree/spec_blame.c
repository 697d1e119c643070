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

/* Whether the document has at least the path's first key; the line of the last that it has, from 0. */
static bool is_given(const char *path, struct spec_document *document, size_t *line) {
  struct spec_entry entry;
  struct path_step step;
  bool is_any = false;
  for (int in = SPEC_ROOT;
       (path = path_next(path, &step)) && spec_entry_find(&document->yaml, in, &step, &entry);
       in = *entry.value) {
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

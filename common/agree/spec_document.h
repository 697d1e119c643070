/* The YAML document of a spec, with its settings in it: for spec*.c, and for specs of other things than runs.
 */
#ifndef WEIR_COMMON_AGREE_SPEC_DOCUMENT_H
#define WEIR_COMMON_AGREE_SPEC_DOCUMENT_H

#include <yaml.h>

#include "common/agree/spec.h"

enum { SPEC_PLACE_MAX = 512, SPEC_ROOT = 1 /* the number of the root's node */ };

struct spec_document {
  yaml_document_t yaml;
  const struct spec_source *source;
  size_t
      settings_line; /* in the marks of nodes setting i has line settings_line + i, beyond all of the file */
};

/* A step of a path like "train.optimizer.groups[2].lr": a key, or an index. */
struct path_step {
  const char *key;
  size_t length; /* 0: the step is an index */
  size_t index;
};

/* The rest of the path behind its first step; NULL where it has none. */
const char *path_next(const char *path, struct path_step *step);

/* An entry of a mapping or a list, as it stands in it. */
struct spec_entry {
  yaml_node_pair_t *pair; /* NULL in a list */
  int *value;             /* the number of its value's node */
};

/* The entry at a step; false where there is none. */
bool spec_entry_find(yaml_document_t *document, int in, const struct path_step *step, struct spec_entry *out);

/* Parses text and puts the settings of its source into it. The source must outlive the document. The caller
   releases it with spec_document_fini where there was no error. Errors: INVALID, "FILE:LINE: ..." or
   "PATH=VALUE: ...". */
int spec_document_load(const struct spec_source *source, const char *text, size_t size,
                       struct spec_document *out, struct err *err);
/* The same of the source's file. Errors: NOT_FOUND where it cannot be opened, IO, INVALID. */
int spec_document_open(const struct spec_source *source, struct spec_document *out, struct err *err);
void spec_document_fini(struct spec_document *document);

/* Reads the document into a message of that type, through the type's descriptor. *out: freed with
   message_free. In YAML a repeated message whose first field is `key` or `path` is a mapping by that field; a
   message that holds nothing but such a field is the mapping itself. Errors: as spec_read. */
int spec_document_read(struct spec_document *document, const ProtobufCMessageDescriptor *type,
                       ProtobufCMessage **out, struct err *err);

/* "FILE:LINE", or the setting, that a line of a mark is of. */
const char *spec_document_place(const struct spec_document *document, size_t line, char out[SPEC_PLACE_MAX]);

/* Puts one setting into the document, as line `line` of its marks. Errors: INVALID, "PATH=VALUE: ...". */
int spec_setting_apply(yaml_document_t *document, const char *setting, size_t line, struct err *err);

/* Parses YAML of at most as many bytes, and of brackets nested as deep, as libyaml may be given. *out:
   deleted by the caller where there was no error. Errors: INVALID, without a place; *line is where, from 1,
   or 0. */
int spec_yaml_load(const char *text, size_t size, yaml_document_t *out, size_t *line, struct err *err);

#endif

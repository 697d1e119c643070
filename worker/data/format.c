/* The table of formats, and what several of them need. */
#include "worker/data/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/def_table.h"
#include "common/machine/memory_available.h"

#define FORMAT(name) extern const struct format_def format_##name;
#include "worker/data/format.def"
#undef FORMAT

static const struct format_def *const defs[] = {
#define FORMAT(name) &format_##name,
#include "worker/data/format.def"
#undef FORMAT
};
static const struct def_table formats = DEF_TABLE(defs);

static bool is_listed(const char *const *names, const char *name) {
  for (; *names; names++)
    if (strcmp(*names, name) == 0)
      return true;
  return false;
}

/* An empty text counts as none. */
static bool is_given(const Weir__DataSource *source, const ProtobufCFieldDescriptor *field) {
  const char *at = (const char *)source + field->offset, *quantifier;
  quantifier = (const char *)source + field->quantifier_offset;
  if (field->label == PROTOBUF_C_LABEL_REPEATED)
    return *(const size_t *)quantifier > 0;
  if (field->type == PROTOBUF_C_TYPE_STRING)
    return *(const char *const *)at && **(const char *const *)at;
  if (field->type == PROTOBUF_C_TYPE_MESSAGE)
    return *(const void *const *)at != NULL;
  return *(const protobuf_c_boolean *)quantifier;
}

static void list_keys(const struct format_def *format, char *out, size_t size) {
  const char *const *lists[] = {format->required, format->optional};
  *out = 0;
  for (int l = 0; l < 2; l++)
    for (const char *const *key = lists[l]; *key; key++)
      snprintf(out + strlen(out), size - strlen(out), "%s%s", *out ? ", " : "", *key);
}

/* Each key that is given is the format's, and none is missing. */
static int check_keys(const struct format_source *source, const struct format_def *format, struct err *err) {
  const ProtobufCMessageDescriptor *descriptor = source->spec->base.descriptor;
  char keys[256];
  list_keys(format, keys, sizeof keys);
  for (unsigned f = 0; f < descriptor->n_fields; f++) {
    const ProtobufCFieldDescriptor *field = &descriptor->fields[f];
    bool has_field = is_given(source->spec, field), is_required = is_listed(format->required, field->name);
    if (is_required && !has_field)
      return err_set(err, ERR_INVALID, "%s.%s: is missing; format '%s' has the keys %s", source->key,
                     field->name, format->name, keys);
    if (has_field && !is_required && !is_listed(format->optional, field->name) &&
        strcmp(field->name, "format") != 0)
      return err_set(err, ERR_INVALID, "%s.%s: is not a key of format '%s' (it has: %s)", source->key,
                     field->name, format->name, keys);
  }
  return 0;
}

int format_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  const struct format_def *format = def_find(&formats, source->spec->format);
  char known[DEF_NAMES_SIZE];
  struct err failure = ERR_NONE;
  if (!format)
    return err_set(err, ERR_INVALID, "%s.format: '%.60s' is not known (known: %s)", source->key,
                   source->spec->format, def_names(&formats, " ", known));
  if (check_keys(source, format, err))
    return err->code;
  if (source->spec->n_columns > COLUMNS_MAX)
    return err_set(err, ERR_UNSUPPORTED, "%s.columns: are %zu; at most %d are read", source->key,
                   source->spec->n_columns, COLUMNS_MAX);
  if (!format->open(source, columns, n, &failure))
    return 0;
  *err = failure;
  if (strncmp(err->text, source->key, strlen(source->key)) != 0)
    err_prefix(err, "%s", source->key);
  return failure.code;
}

int format_map(const struct format_source *source, const char *file, char *path, struct mapping **out,
               struct err *err) {
  int fd = data_folder_file(source->folder, file, path, err);
  return fd < 0 ? (int)err->code : mapping_open(fd, path, out, err);
}

int format_resize(const char *path, uint64_t had, uint64_t bytes, void **memory, struct err *err) {
  uint64_t available = memory_available_bytes("");
  void *resized = bytes <= had || bytes - had <= available ? realloc(*memory, bytes) : NULL;
  if (!resized)
    return err_set(err, ERR_NO_MEMORY, "%s: needs %llu bytes of memory; this worker has %llu left", path,
                   (unsigned long long)bytes, (unsigned long long)available);
  *memory = resized;
  return 0;
}

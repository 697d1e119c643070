/* npz: arrays of numpy.savez as columns. Stored ones stay in the mapped file; those of savez_compressed are
   inflated once their headers have said how much memory that takes. */
#include "worker/data/format.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "worker/data/formats/npy.h"
#include "worker/data/formats/zip.h"

enum { HEADER_BYTES_MAX = 1 << 17 }; /* numpy writes less than half of that */

static int inflate_array(const struct zip *zip, const struct zip_member *member, const char *name,
                         struct column *column, struct err *err) {
  unsigned char *header = mem_new(HEADER_BYTES_MAX);
  size_t got = HEADER_BYTES_MAX, begin;
  if (zip_peek(zip, member, header, &got, err) ||
      npy_read(&(struct npy_file){name, header, got, member->bytes}, column, err))
    goto out;
  begin = (size_t)((const unsigned char *)column->data - header);
  if (format_resize(name, 0, member->bytes, &column->memory, err) ||
      zip_read(zip, member, column->memory, err))
    goto out;
  column->data = (const unsigned char *)column->memory + begin;
out:
  free(header);
  return err->code;
}

static int read_member(const struct zip *zip, const char *array, struct column *column, struct err *err) {
  char member_name[256], name[PATH_MAX + 300];
  const struct zip_member *member;
  const unsigned char *content;
  if ((size_t)snprintf(member_name, sizeof member_name, "%s.npy", array) >= sizeof member_name)
    return err_set(err, ERR_INVALID, "%s: the name '%.40s...' is too long", zip->path, array);
  snprintf(name, sizeof name, "%s: %s", zip->path, member_name);
  if (zip_find(zip, member_name, &member, err))
    return err->code;
  if (!zip_is_stored(member))
    return inflate_array(zip, member, name, column, err);
  if (zip_view(zip, member, &content, err))
    return err->code;
  return npy_read(&(struct npy_file){name, content, member->bytes, member->bytes}, column, err);
}

/* Each column maps the file by itself, and so can be released by itself. */
static int read_column(const struct format_source *source, const char *column_name, const char *array,
                       struct column *column, struct err *err) {
  char path[PATH_MAX];
  struct zip zip = {0};
  *column = (struct column){.name = column_name};
  if (format_map(source, source->spec->file, path, &column->mapping, err) ||
      zip_open(path, mapping_data(column->mapping), mapping_size(column->mapping), &zip, err) ||
      read_member(&zip, array, column, err))
    goto out;
  if (column->memory && mapping_check(column->mapping, err) == 0) {
    mapping_close(column->mapping);
    column->mapping = NULL;
  }
out:
  zip_close(&zip);
  return err->code;
}

static int npz_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  for (size_t i = 0; i < source->spec->n_columns; i++) {
    const Weir__DataSource__ColumnsEntry *entry = source->spec->columns[i];
    if (read_column(source, entry->key, entry->value, &columns[(*n)++], err))
      return err->code;
  }
  return 0;
}

const struct format_def format_npz = {
    .name = "npz",
    .required = (const char *const[]){"file", "columns", NULL},
    .optional = (const char *const[]){NULL},
    .open = npz_open,
};

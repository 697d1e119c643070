/* npy: one array of numpy.save for each column, its first dimension the samples. Mapped, not copied.
   Source: NEP 1 and numpy.lib.format, versions 1.0, 2.0 and 3.0. The header is a Python literal, of which
   exactly what numpy writes is read: nothing is evaluated. */
#include "worker/data/formats/npy.h"

#include <limits.h>
#include <string.h>

#include "worker/data/format.h"

enum { PREFIX_BYTES = 8, TEXT_MAX = 64 };

static const struct npy_type {
  const char *descr;
  enum dtype dtype;
} npy_types[] = {
    {"<f4", DTYPE_F32}, {"<i8", DTYPE_I64}, {"<i4", DTYPE_I32}, {"|u1", DTYPE_U8}, {"|b1", DTYPE_BOOL},
};

/* The rest of a header that is being read. */
struct header {
  const char *path;
  const char *file; /* its bytes */
  const char *at, *end;
  char descr[TEXT_MAX];
  bool is_fortran_order;
  struct shape shape;
};

static int fail_header(const struct header *header, struct err *err, const char *wanted) {
  return err_set(err, ERR_INVALID, "%s: its npy header cannot be read: %s is wanted at byte %td",
                 header->path, wanted, header->at - header->file);
}

static void skip_space(struct header *header) {
  while (header->at < header->end && (*header->at == ' ' || *header->at == '\n'))
    header->at++;
}

/* Takes `token` if it comes next. */
static bool token_take(struct header *header, const char *token) {
  size_t length = strlen(token);
  skip_space(header);
  if ((size_t)(header->end - header->at) < length || memcmp(header->at, token, length) != 0)
    return false;
  header->at += length;
  return true;
}

static int read_text(struct header *header, char out[TEXT_MAX], struct err *err) {
  char quote = token_take(header, "'") ? '\'' : token_take(header, "\"") ? '"' : 0;
  size_t length = 0;
  if (!quote)
    return fail_header(header, err, "a quoted text");
  while (header->at < header->end && *header->at != quote && *header->at >= ' ' && *header->at <= '~' &&
         length < TEXT_MAX - 1)
    out[length++] = *header->at++;
  out[length] = 0;
  if (header->at == header->end || *header->at != quote)
    return fail_header(header, err, "the end of a text");
  header->at++;
  return 0;
}

static int read_dim(struct header *header, int64_t *out, struct err *err) {
  const char *begin = header->at;
  *out = 0;
  for (; header->at < header->end && *header->at >= '0' && *header->at <= '9'; header->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *header->at - '0', out))
      return err_set(err, ERR_INVALID, "%s: a dimension of its npy header is impossibly large", header->path);
  return header->at == begin ? fail_header(header, err, "a dimension") : 0;
}

static int read_shape(struct header *header, struct err *err) {
  struct shape *shape = &header->shape;
  if (!token_take(header, "("))
    return fail_header(header, err, "the shape's '('");
  while (!token_take(header, ")")) {
    if (shape->rank == RANK_MAX)
      return err_set(err, ERR_UNSUPPORTED, "%s: has more than %d dimensions", header->path, RANK_MAX);
    if (read_dim(header, &shape->dim[shape->rank++], err))
      return err->code;
    if (token_take(header, ",") || (shape->rank > 1 && header->at < header->end && *header->at == ')'))
      continue;
    return fail_header(header, err, "',' or the shape's ')'");
  }
  return 0;
}

static int read_entry(struct header *header, const char *key, struct err *err) {
  if (strcmp(key, "shape") == 0)
    return read_shape(header, err);
  if (strcmp(key, "fortran_order") == 0) {
    header->is_fortran_order = token_take(header, "True");
    return header->is_fortran_order || token_take(header, "False")
               ? 0
               : fail_header(header, err, "True or False");
  }
  if (token_take(header, "["))
    return err_set(err, ERR_UNSUPPORTED, "%s: is a structured array; save each of its fields by itself",
                   header->path);
  return read_text(header, header->descr, err);
}

/* "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }": the three keys, in any order. */
static int parse_header(struct header *header, struct err *err) {
  static const char *const keys[] = {"descr", "fortran_order", "shape"};
  bool is_read[3] = {false};
  char key[TEXT_MAX];
  if (!token_take(header, "{"))
    return fail_header(header, err, "'{'");
  while (!token_take(header, "}")) {
    int k = 0;
    if (read_text(header, key, err))
      return err->code;
    while (k < 3 && strcmp(keys[k], key) != 0)
      k++;
    if (k == 3 || is_read[k])
      return err_set(err, ERR_INVALID, "%s: the key that ends at byte %td of its npy header is %s",
                     header->path, header->at - header->file, k == 3 ? "not known" : "there twice");
    is_read[k] = true;
    if (!token_take(header, ":"))
      return fail_header(header, err, "':'");
    skip_space(header);
    if (read_entry(header, key, err))
      return err->code;
    skip_space(header);
    if (!token_take(header, ",") && (header->at == header->end || *header->at != '}'))
      return fail_header(header, err, "',' or '}'");
  }
  for (int k = 0; k < 3; k++)
    if (!is_read[k])
      return err_set(err, ERR_INVALID, "%s: its npy header lacks the key '%s'", header->path, keys[k]);
  skip_space(header);
  return header->at == header->end ? 0 : fail_header(header, err, "the header's end");
}

static int refuse_type(const struct header *header, struct err *err) {
  const char *descr = header->descr;
  if (strcmp(descr, "<f8") == 0)
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: holds 64-bit floats; save it as 32-bit ones: array.astype('float32')", header->path);
  if (descr[0] == '>')
    return err_set(err, ERR_UNSUPPORTED, "%s: is big-endian; save it as little-endian", header->path);
  return err_set(err, ERR_UNSUPPORTED, "%s: its numpy type is not one of <f4, <i8, <i4, |u1, |b1",
                 header->path);
}

/* What the header says, as a column of data_bytes. */
static int npy_describe(const struct header *header, uint64_t data_bytes, struct column *column,
                        struct err *err) {
  const struct shape *shape = &header->shape;
  uint64_t elems = 1, total;
  for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
    if (strcmp(npy_types[i].descr, header->descr) == 0)
      column->dtype = npy_types[i].dtype;
  if (column->dtype == DTYPE_NONE)
    return refuse_type(header, err);
  if (header->is_fortran_order)
    return err_set(err, ERR_UNSUPPORTED, "%s: is in Fortran order; save numpy.ascontiguousarray(array)",
                   header->path);
  if (shape->rank == 0)
    return err_set(err, ERR_INVALID, "%s: is a single number; its first dimension should be the samples",
                   header->path);
  for (int i = 0; i < shape->rank; i++)
    if (shape->dim[i] == 0 || __builtin_mul_overflow(elems, (uint64_t)shape->dim[i], &elems))
      return err_set(err, ERR_INVALID, "%s: has no sample, or impossible dimensions", header->path);
  if (__builtin_mul_overflow(elems, dtype_size(column->dtype), &total) || total > data_bytes)
    return err_set(err, ERR_CORRUPT, "%s: cut short: its header announces more than the %llu bytes of data",
                   header->path, (unsigned long long)data_bytes);
  if (total < data_bytes)
    return err_set(err, ERR_INVALID, "%s: goes on after the %llu bytes that its header announces",
                   header->path, (unsigned long long)total);
  column->samples = (uint64_t)shape->dim[0];
  column->sample.rank = shape->rank - 1;
  memcpy(column->sample.dim, shape->dim + 1, (size_t)column->sample.rank * sizeof shape->dim[0]);
  return 0;
}

int npy_read(const struct npy_file *file, struct column *column, struct err *err) {
  const char *path = file->path;
  const unsigned char *bytes = file->bytes;
  uint64_t have = file->have;
  struct header header = {.path = path};
  uint64_t begin, length;
  if (have < PREFIX_BYTES || memcmp(bytes, "\x93NUMPY", 6) != 0)
    return err_set(err, ERR_INVALID, "%s: is not a file of numpy.save", path);
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
    return err_set(err, ERR_UNSUPPORTED, "%s: its npy version is not one of 1.0, 2.0, 3.0", path);
  begin = PREFIX_BYTES + (bytes[6] == 1 ? 2 : 4);
  if (have < begin)
    return err_set(err, ERR_CORRUPT, "%s: cut short: it ends within its header", path);
  length = bytes[8] | (uint64_t)bytes[9] << 8;
  if (bytes[6] > 1)
    length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
  if (length > have - begin)
    return err_set(err, ERR_CORRUPT, "%s: cut short: it ends within its header", path);
  header.file = (const char *)bytes;
  header.at = header.file + begin;
  header.end = header.at + length;
  column->data = header.end;
  if (parse_header(&header, err))
    return err->code;
  return npy_describe(&header, file->size - begin - length, column, err);
}

static int read_column(const struct format_source *source, const char *name, const char *file_name,
                       struct column *column, struct err *err) {
  char path[PATH_MAX];
  uint64_t size_bytes;
  *column = (struct column){.name = name};
  if (format_map(source, file_name, path, &column->mapping, err))
    return err->code;
  size_bytes = mapping_size(column->mapping);
  return npy_read(&(struct npy_file){path, mapping_data(column->mapping), size_bytes, size_bytes}, column,
                  err);
}

static int npy_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  for (size_t i = 0; i < source->spec->n_columns; i++) {
    const Weir__DataSource__ColumnsEntry *entry = source->spec->columns[i];
    if (read_column(source, entry->key, entry->value, &columns[(*n)++], err))
      return err->code;
  }
  return 0;
}

const struct format_def format_npy = {
    .name = "npy",
    .required = (const char *const[]){"columns", NULL},
    .optional = (const char *const[]){NULL},
    .open = npy_open,
};

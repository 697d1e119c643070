/* idx: the format of MNIST (LeCun): magic 00 00 TYPE RANK, big-endian 32-bit dimensions, big-endian elements.
   Plain, or gzip when the name ends in .gz. */
#include "worker/data/format.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { IDX_RANK_MAX = 4, READ_BYTES = 1 << 20 };

static const struct idx_type {
  unsigned char code;
  enum dtype dtype;
} idx_types[] = {{0x08, DTYPE_U8}, {0x0c, DTYPE_I32}, {0x0d, DTYPE_F32}};

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int fail_read(gzFile file, const char *path, const char *what, struct err *err) {
  int code;
  const char *text = gzerror(file, &code);
  if (code == Z_ERRNO)
    return err_errno(err, errno, "%s", path);
  if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
    return err_set(err, ERR_CORRUPT, "%s: damaged gzip data: %s", path, text);
  return err_set(err, ERR_CORRUPT, "%s: cut short: it ends within its %s", path, what);
}

static int read_header(gzFile file, const char *path, struct column *column, struct err *err) {
  unsigned char magic[4];
  uint32_t dims[IDX_RANK_MAX + 1];
  int got = gzread(file, magic, sizeof magic);
  if (ends_with(path, ".gz") && gzdirect(file))
    return err_set(err, ERR_INVALID, "%s: is named .gz but is not gzip data", path);
  if (got != (int)sizeof magic)
    return fail_read(file, path, "header", err);
  for (size_t i = 0; i < sizeof idx_types / sizeof *idx_types; i++)
    if (idx_types[i].code == magic[2])
      column->dtype = idx_types[i].dtype;
  if (magic[0] || magic[1] || magic[3] == 0 || magic[3] > IDX_RANK_MAX + 1)
    return err_set(err, ERR_INVALID, "%s: is not an IDX file: its first four bytes are not those of one",
                   path);
  if (column->dtype == DTYPE_NONE)
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: its IDX element type, the third byte, is not one of u8, i32, f32", path);
  if (gzread(file, dims, magic[3] * 4u) != magic[3] * 4)
    return fail_read(file, path, "header", err);
  column->samples = ntohl(dims[0]);
  column->sample.rank = magic[3] - 1;
  for (int i = 0; i < column->sample.rank; i++)
    column->sample.dim[i] = ntohl(dims[i + 1]);
  return 0;
}

/* gzip's check sum comes last: only a read past the data sees whether it holds. */
static int check_end(gzFile file, const char *path, size_t total, struct err *err) {
  int code;
  if (gzgetc(file) != -1)
    return err_set(err, ERR_INVALID, "%s: goes on after the %zu bytes that its header announces", path,
                   total);
  gzerror(file, &code);
  return code == Z_OK || code == Z_STREAM_END ? 0 : fail_read(file, path, "check sum", err);
}

/* Grows with what really comes, so that a header that lies about its size costs nothing. */
static int read_elements(gzFile file, const char *path, struct column *column, struct err *err) {
  int64_t per_sample = shape_elems(&column->sample);
  size_t total, used = 0, capacity = 0;
  if (per_sample <= 0 || column->samples == 0 ||
      __builtin_mul_overflow((size_t)per_sample * dtype_size(column->dtype), column->samples, &total) ||
      total > (size_t)1 << 40)
    return err_set(err, ERR_INVALID, "%s: has no sample, or impossible dimensions", path);
  while (used < total) {
    size_t want = total - used < READ_BYTES ? total - used : READ_BYTES;
    int got;
    if (used + want > capacity) {
      size_t had = capacity;
      capacity = capacity * 2 > used + want ? capacity * 2 : used + want;
      capacity = capacity > total ? total : capacity;
      if (format_resize(path, had, capacity, &column->memory, err))
        return err->code;
      column->data = column->memory;
    }
    got = gzread(file, (char *)column->memory + used, (unsigned)want);
    if (got <= 0)
      return fail_read(file, path, "data", err);
    used += (size_t)got;
  }
  return check_end(file, path, total, err);
}

static void swap_elements(struct column *column) {
  size_t n = (size_t)shape_elems(&column->sample) * column->samples;
  if (dtype_size(column->dtype) == 4)
    for (size_t i = 0; i < n; i++)
      ((uint32_t *)column->memory)[i] = ntohl(((uint32_t *)column->memory)[i]);
}

static int read_column(const struct format_source *source, const char *name, const char *file_name,
                       struct column *column, struct err *err) {
  char path[PATH_MAX];
  gzFile file;
  int code, fd = data_folder_file(source->folder, file_name, path, err);
  *column = (struct column){.name = name};
  if (fd < 0)
    return err->code;
  file = gzdopen(fd, "rb");
  if (!file) {
    close(fd);
    return err_set(err, ERR_NO_MEMORY, "%s: no memory to read it", path);
  }
  gzbuffer(file, 256 * 1024);
  code = read_header(file, path, column, err);
  if (!code)
    code = read_elements(file, path, column, err);
  if (!code)
    swap_elements(column);
  gzclose(file);
  return code;
}

static int idx_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  const Weir__DataSource *spec = source->spec;
  if (read_column(source, "images", spec->images, &columns[(*n)++], err))
    return err->code;
  if (spec->labels && read_column(source, "labels", spec->labels, &columns[(*n)++], err))
    return err->code;
  return 0;
}

const struct format_def format_idx = {
    .name = "idx",
    .required = (const char *const[]){"images", NULL},
    .optional = (const char *const[]){"labels", NULL},
    .open = idx_open,
};

/* cifar: the binary files of CIFAR-10 and CIFAR-100 (Krizhevsky): records of one label, or a coarse and a
   fine one, and 3072 bytes: 32 rows of 32 pixels of red, of green, of blue. */
#include "worker/data/format.h"

#include <limits.h>
#include <string.h>

enum { IMAGE_BYTES = 3 * 32 * 32, FILES_MAX = 1024 };

/* What the sizes of the files say. */
struct layout {
  int labels; /* of a record: 1, or 2: the fine one is the last */
  uint64_t samples;
};

static int read_sizes(const struct format_source *source, uint64_t *sizes, struct err *err) {
  char path[PATH_MAX];
  for (size_t f = 0; f < source->spec->n_files; f++) {
    struct mapping *mapping;
    if (format_map(source, source->spec->files[f], path, &mapping, err))
      return err->code;
    sizes[f] = mapping_size(mapping);
    mapping_close(mapping);
  }
  return 0;
}

/* The first file that is no whole number of records; -1 if there is none. */
static int find_misfit(const uint64_t *sizes, size_t n, int labels) {
  for (size_t f = 0; f < n; f++)
    if (sizes[f] % (IMAGE_BYTES + (unsigned)labels))
      return (int)f;
  return -1;
}

static int find_layout(const struct format_source *source, const uint64_t *sizes, struct layout *out,
                       struct err *err) {
  const Weir__DataSource *spec = source->spec;
  int misfit10 = find_misfit(sizes, spec->n_files, 1), misfit100 = find_misfit(sizes, spec->n_files, 2),
      misfit;
  if (spec->has_classes && spec->classes != 10 && spec->classes != 100)
    return err_set(err, ERR_INVALID, "%s.classes: is %u; there are CIFAR-10 and CIFAR-100", source->key,
                   spec->classes);
  if (!spec->has_classes && misfit10 < 0 && misfit100 < 0)
    return err_set(err, ERR_INVALID,
                   "%s.classes: must be given, 10 or 100: the files' sizes are those of either", source->key);
  out->labels = spec->has_classes ? (spec->classes == 10 ? 1 : 2)
                                  : (misfit10 < 0 || (misfit100 >= 0 && misfit10 > misfit100) ? 1 : 2);
  misfit = out->labels == 1 ? misfit10 : misfit100;
  if (misfit >= 0)
    return err_set(err, ERR_CORRUPT, "%s: its %llu bytes are no whole number of %s bytes",
                   spec->files[misfit], (unsigned long long)sizes[misfit],
                   !spec->has_classes ? "3073 or 3074" : (out->labels == 1 ? "3073" : "3074"));
  out->samples = 0;
  for (size_t f = 0; f < spec->n_files; f++)
    out->samples += sizes[f] / (IMAGE_BYTES + (unsigned)out->labels);
  return 0;
}

static int add_column(const char *name, uint64_t samples, bool is_image, struct column *column,
                      struct err *err) {
  *column = (struct column){.name = name, .dtype = DTYPE_U8, .samples = samples};
  if (is_image)
    column->sample = (struct shape){3, {3, 32, 32}};
  if (format_resize(name, 0, samples * (is_image ? IMAGE_BYTES : 1), &column->memory, err))
    return err->code;
  column->data = column->memory;
  return 0;
}

/* columns: images, labels and, of two labels, coarse_labels. */
static int read_files(const struct format_source *source, const uint64_t *sizes, const struct layout *layout,
                      struct column *columns, struct err *err) {
  unsigned char *images = columns[0].memory, *labels = columns[1].memory;
  unsigned char *coarse = layout->labels == 2 ? columns[2].memory : NULL;
  char path[PATH_MAX];
  for (size_t f = 0; f < source->spec->n_files; f++) {
    struct mapping *mapping;
    const unsigned char *record;
    uint64_t n = sizes[f] / (IMAGE_BYTES + (unsigned)layout->labels);
    if (format_map(source, source->spec->files[f], path, &mapping, err))
      return err->code;
    if (mapping_size(mapping) != sizes[f])
      err_set(err, ERR_CORRUPT, "%s: changed while it was read", path);
    record = mapping_data(mapping);
    for (uint64_t i = 0; !err->code && i < n; i++) {
      if (coarse)
        *coarse++ = *record++;
      *labels++ = *record++;
      memcpy(images, record, IMAGE_BYTES);
      images += IMAGE_BYTES;
      record += IMAGE_BYTES;
    }
    if (!err->code)
      mapping_check(mapping, err);
    mapping_close(mapping);
    if (err->code)
      return err->code;
  }
  return 0;
}

static int cifar_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  uint64_t sizes[FILES_MAX];
  struct layout layout = {0};
  if (source->spec->n_files > FILES_MAX)
    return err_set(err, ERR_UNSUPPORTED, "%s.files: are %zu; at most %d are read", source->key,
                   source->spec->n_files, FILES_MAX);
  if (read_sizes(source, sizes, err) || find_layout(source, sizes, &layout, err) ||
      add_column("images", layout.samples, true, &columns[(*n)++], err) ||
      add_column("labels", layout.samples, false, &columns[(*n)++], err) ||
      (layout.labels == 2 && add_column("coarse_labels", layout.samples, false, &columns[(*n)++], err)))
    return err->code;
  return read_files(source, sizes, &layout, columns, err);
}

const struct format_def format_cifar = {
    .name = "cifar",
    .required = (const char *const[]){"files", NULL},
    .optional = (const char *const[]){"classes", NULL},
    .open = cifar_open,
};

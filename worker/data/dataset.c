/* Datasets: columns of samples and how they feed graph inputs. */
#include "worker/data/dataset.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sha256.h"
#include "worker/data/format.h"
#include "worker/data/transform.h"

struct dataset {
  struct column columns[COLUMNS_MAX];
  int n_columns;
  char sha256[SHA256_HEX_SIZE];
};

#define FORMAT(name) extern const struct format_def format_##name;
#include "worker/data/format.def"
#undef FORMAT

static const struct format_def *const format_defs[] = {
#define FORMAT(name) &format_##name,
#include "worker/data/format.def"
#undef FORMAT
};

const struct format_def *format_find(const char *name) {
  for (size_t i = 0; i < sizeof format_defs / sizeof *format_defs; i++)
    if (strcmp(format_defs[i]->name, name) == 0)
      return format_defs[i];
  return NULL;
}

const char *format_names(void) {
  return ""
#define FORMAT(name) #name " "
#include "worker/data/format.def"
#undef FORMAT
      ;
}

int format_path(const char *folder, const char *file, char *out, size_t size, struct err *err) {
  bool is_below = *file && *file != '/';
  for (const char *part = file; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
    is_below &= strcmp(part, "..") != 0 && strncmp(part, "../", 3) != 0;
  if (!is_below)
    return err_set(err, ERR_INVALID, "'%s' names no file below %s", file, folder);
  if ((size_t)snprintf(out, size, "%s/%s", folder, file) >= size)
    return err_set(err, ERR_INVALID, "the path of '%s' is too long", file);
  return 0;
}

/* The folder of spec->data.root under data_root, without "..", so that no spec reads outside it. */
static int resolve_folder(const char *root, const char *data_root, char *out, size_t size, struct err *err) {
  char base[PATH_MAX], joined[PATH_MAX], real[PATH_MAX];
  size_t length;
  if (!realpath(data_root, base))
    return err_set(err, ERR_NOT_FOUND, "--data-root %s: there is no such folder on this worker", data_root);
  if ((size_t)snprintf(joined, sizeof joined, "%s%s%s", root[0] == '/' ? "" : base, root[0] == '/' ? "" : "/",
                       root) >= sizeof joined)
    return err_set(err, ERR_INVALID, "data.root: the path is too long");
  if (!realpath(joined, real))
    return err_set(err, ERR_NOT_FOUND, "data.root: there is no folder %s on this worker", joined);
  length = strcmp(base, "/") == 0 ? 0 : strlen(base);
  if (strncmp(real, base, length) != 0 || (real[length] != '/' && real[length] != 0))
    return err_set(err, ERR_INVALID, "data.root: %s lies outside this worker's --data-root %s", real, base);
  snprintf(out, size, "%s", real);
  return 0;
}

static void hash_columns(struct dataset *dataset) {
  struct sha256 *sha = sha256_new();
  for (int c = 0; c < dataset->n_columns; c++) {
    const struct column *column = &dataset->columns[c];
    size_t sample_bytes = (size_t)shape_elems(&column->sample) * dtype_size(column->dtype);
    sha256_update(sha, column->name, strlen(column->name) + 1);
    sha256_update(sha, &column->dtype, sizeof column->dtype);
    sha256_update(sha, column->sample.dim, (size_t)column->sample.rank * sizeof column->sample.dim[0]);
    sha256_update(sha, column->data, sample_bytes * column->samples);
  }
  sha256_finish(sha, dataset->sha256);
}

int dataset_open(const Weir__RunSpec *spec, const Weir__DataSource *source, const char *data_root,
                 struct dataset **out, struct err *err) {
  const struct format_def *format = format_find(source->format);
  struct dataset *dataset;
  char folder[PATH_MAX];
  *out = NULL;
  if (!format)
    return err_set(err, ERR_INVALID, "format '%s' is not known; known: %s", source->format, format_names());
  if (resolve_folder(spec->data->root ? spec->data->root : "", data_root, folder, sizeof folder, err))
    return err->code;
  dataset = mem_new(sizeof *dataset);
  if (format->open(folder, source, dataset->columns, &dataset->n_columns, err))
    goto out;
  for (int c = 1; c < dataset->n_columns; c++)
    if (dataset->columns[c].samples != dataset->columns[0].samples) {
      err_set(err, ERR_INVALID, "%llu %s but %llu %s in %s", (unsigned long long)dataset->columns[0].samples,
              dataset->columns[0].name, (unsigned long long)dataset->columns[c].samples,
              dataset->columns[c].name, folder);
      goto out;
    }
  hash_columns(dataset);
  if (dataset_check(dataset, err))
    goto out;
  *out = dataset;
  return 0;
out:
  dataset_close(dataset);
  return err->code;
}

void dataset_close(struct dataset *dataset) {
  for (int c = 0; dataset && c < dataset->n_columns; c++)
    column_release(&dataset->columns[c]);
  free(dataset);
}

uint64_t dataset_samples(const struct dataset *dataset) {
  return dataset->columns[0].samples;
}

const char *dataset_sha256(const struct dataset *dataset) {
  return dataset->sha256;
}

int dataset_check(const struct dataset *dataset, struct err *err) {
  for (int c = 0; c < dataset->n_columns; c++)
    if (dataset->columns[c].mapping && mapping_check(dataset->columns[c].mapping, err))
      return err->code;
  return 0;
}

static int find_column(const struct dataset *dataset, const char *name, bool is_label, struct err *err) {
  char known[256] = "";
  for (int c = 0; c < dataset->n_columns; c++) {
    const char *column = dataset->columns[c].name;
    bool is_labels = strcmp(column, "labels") == 0;
    if (*name ? strcmp(column, name) == 0 : is_label == is_labels)
      return c;
    snprintf(known + strlen(known), sizeof known - strlen(known), " %s", column);
  }
  err_set(err, ERR_INVALID, "there is no column '%s'; the dataset has:%s",
          *name ? name : (is_label ? "labels" : "images"), known);
  return -1;
}

static int check_labels(const struct column *column, int64_t classes, struct err *err) {
  char text[96];
  if (column->sample.rank != 0 || column->dtype == DTYPE_F32)
    return err_set(err, ERR_INVALID,
                   "labels are one whole number per sample, but samples of column '%s' are %s %s",
                   column->name, dtype_name(column->dtype), shape_text(&column->sample, text, sizeof text));
  for (uint64_t i = 0; classes && i < column->samples; i++) {
    int64_t label = column_integer(column, i);
    if (label < 0 || label >= classes)
      return err_set(err, ERR_INVALID, "%s: sample %llu has label %lld, the model has %lld classes",
                     column->name, (unsigned long long)i, (long long)label, (long long)classes);
  }
  return 0;
}

static int check_transforms(const Weir__RunSpec *spec, int64_t channels, struct err *err) {
  for (size_t t = 0; t < spec->data->n_transforms; t++)
    if (transform_of(spec->data->transforms[t])->check(spec->data->transforms[t], channels, err))
      return err->code;
  return 0;
}

int dataset_bind(const struct dataset *dataset, const Weir__RunSpec *spec, const char *name,
                 const struct value *input, bool is_label, int64_t classes, struct column_form *form,
                 struct err *err) {
  int found = find_column(dataset, name, is_label, err);
  const struct column *column = &dataset->columns[found < 0 ? 0 : found];
  struct shape wanted = {input->shape.rank - 1, {0}};
  char have_text[96], want_text[96];
  if (found < 0)
    return err->code;
  memcpy(wanted.dim, input->shape.dim + 1, sizeof wanted.dim - sizeof wanted.dim[0]);
  *form = (struct column_form){found, input->dtype, shape_elems(&wanted),
                               input->shape.rank >= 3 ? input->shape.dim[1] : 1};
  if (is_label)
    return check_labels(column, classes, err);
  if (shape_elems(&column->sample) != form->elems)
    return err_set(err, ERR_INVALID, "samples of column '%s' are %s, the model's input '%s' wants %s",
                   column->name, shape_text(&column->sample, have_text, sizeof have_text), input->name,
                   shape_text(&wanted, want_text, sizeof want_text));
  if (input->dtype == DTYPE_F32)
    return check_transforms(spec, form->channels, err);
  return column_check_integers(column, input, err);
}

void dataset_read(const struct dataset *dataset, const Weir__RunSpec *spec, const struct column_form *form,
                  const uint64_t *indices, uint32_t n, void *out) {
  const struct column *column = &dataset->columns[form->column];
  size_t sample_bytes = (size_t)form->elems * dtype_size(form->dtype);
  for (uint32_t s = 0; s < n; s++) {
    uint64_t begin = indices[s] * (uint64_t)form->elems;
    if (form->dtype == DTYPE_F32)
      column_read_f32(column, begin, form->elems, (float *)out + s * form->elems);
    else
      column_read_integers(column, begin, form->elems, form->dtype, (char *)out + s * sample_bytes);
  }
  for (size_t t = 0; form->dtype == DTYPE_F32 && t < spec->data->n_transforms; t++) {
    const struct transform_def *transform = transform_of(spec->data->transforms[t]);
    for (uint32_t s = 0; s < n; s++)
      transform->apply(spec->data->transforms[t], (float *)out + s * form->elems, form->elems,
                       form->channels);
  }
}

/* Datasets: columns of samples and how they feed graph inputs. */
#include "worker/data/dataset.h"

#include <limits.h>
#include <math.h>
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
  char folder[PATH_MAX];
  const Weir__DataSource *train = spec->data->train;
  struct format_source files = {source == train ? "data.train" : "data.eval", folder, source, train};
  struct dataset *dataset;
  *out = NULL;
  if (resolve_folder(spec->data->root ? spec->data->root : "", data_root, folder, sizeof folder, err))
    return err->code;
  dataset = mem_new(sizeof *dataset);
  if (format_open(&files, dataset->columns, &dataset->n_columns, err))
    goto out;
  for (int c = 1; c < dataset->n_columns; c++)
    if (dataset->columns[c].samples != dataset->columns[0].samples) {
      err_set(err, ERR_INVALID, "%s: %llu %s but %llu %s in %s", files.key,
              (unsigned long long)dataset->columns[0].samples, dataset->columns[0].name,
              (unsigned long long)dataset->columns[c].samples, dataset->columns[c].name, folder);
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

/* The same shape but for dimensions of 1. */
static bool shapes_match(const struct shape *a, const struct shape *b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < a->rank && a->dim[i] == 1)
      i++;
    while (j < b->rank && b->dim[j] == 1)
      j++;
    if (i == a->rank || j == b->rank)
      return i == a->rank && j == b->rank;
    if (a->dim[i++] != b->dim[j++])
      return false;
  }
}

/* Where in its sample element i lies: " at [2,5]"; nothing where a sample has one element. */
static const char *place_text(const struct column *column, uint64_t i, char *text, size_t size) {
  struct shape place = column->sample;
  uint64_t rest = i % (uint64_t)shape_elems(&column->sample);
  char at[96];
  *text = 0;
  for (int d = place.rank - 1; d >= 0; d--) {
    place.dim[d] = (int64_t)(rest % (uint64_t)column->sample.dim[d]);
    rest /= (uint64_t)column->sample.dim[d];
  }
  if (shape_elems(&column->sample) > 1)
    snprintf(text, size, " at %s", shape_text(&place, at, sizeof at));
  return text;
}

static int check_classes(const struct column *column, const struct label_rule *labels, struct err *err) {
  uint64_t elems = (uint64_t)shape_elems(&column->sample);
  char place[128];
  if (column->dtype == DTYPE_F32)
    return err_set(err, ERR_INVALID, "labels of classes are whole numbers, but column '%s' is f32",
                   column->name);
  for (uint64_t i = 0; i < elems * column->samples; i++) {
    int64_t label = column_integer(column, i);
    if (label != labels->ignore_index && !label_is_class(labels, label))
      return err_set(err, ERR_INVALID, "%s: sample %llu has label %lld%s, the model has %lld classes",
                     column->name, (unsigned long long)(i / elems), (long long)label,
                     place_text(column, i, place, sizeof place), (long long)labels->classes);
  }
  return 0;
}

static int check_targets(const struct column *column, struct err *err) {
  uint64_t elems = (uint64_t)shape_elems(&column->sample);
  char place[128];
  for (uint64_t i = 0; column->dtype == DTYPE_F32 && i < elems * column->samples; i++) {
    float target;
    column_read_f32(column, i, 1, &target);
    if (!isfinite(target))
      return err_set(err, ERR_INVALID, "%s: sample %llu has the target %g%s, targets must be finite",
                     column->name, (unsigned long long)(i / elems), (double)target,
                     place_text(column, i, place, sizeof place));
  }
  return 0;
}

static const char *sample_text(const struct shape *shape, char *text, size_t size) {
  return shape->rank ? shape_text(shape, text, size) : "one number";
}

static int check_labels(const struct column *column, const struct shape *wanted,
                        const struct label_rule *labels, struct err *err) {
  char have_text[96], want_text[96];
  if (!shapes_match(&column->sample, wanted))
    return err_set(err, ERR_INVALID, "labels of column '%s' are %s in each sample, where %s is needed",
                   column->name, sample_text(&column->sample, have_text, sizeof have_text),
                   sample_text(wanted, want_text, sizeof want_text));
  return labels->classes > 0 ? check_classes(column, labels, err) : check_targets(column, err);
}

static int check_transforms(const Weir__RunSpec *spec, int64_t channels, struct err *err) {
  for (size_t t = 0; t < spec->data->n_transforms; t++)
    if (transform_of(spec->data->transforms[t])->check(spec->data->transforms[t], channels, err))
      return err->code;
  return 0;
}

int dataset_bind(const struct dataset *dataset, const Weir__RunSpec *spec, const char *name,
                 const struct value *input, const struct label_rule *labels, struct column_form *form,
                 struct err *err) {
  int found = find_column(dataset, name, labels != NULL, err);
  const struct column *column = &dataset->columns[found < 0 ? 0 : found];
  struct shape wanted = {input->shape.rank - 1, {0}};
  char have_text[96], want_text[96];
  if (found < 0)
    return err->code;
  memcpy(wanted.dim, input->shape.dim + 1, sizeof wanted.dim - sizeof wanted.dim[0]);
  *form = (struct column_form){found, input->dtype, shape_elems(&wanted),
                               input->shape.rank >= 3 ? input->shape.dim[1] : 1,
                               input->dtype == DTYPE_F32 && !labels};
  if (labels)
    return check_labels(column, &wanted, labels, err);
  if (shape_elems(&column->sample) != form->elems)
    return err_set(err, ERR_INVALID, "samples of column '%s' are %s, the model's input '%s' wants %s",
                   column->name, shape_text(&column->sample, have_text, sizeof have_text), input->name,
                   shape_text(&wanted, want_text, sizeof want_text));
  if (input->dtype == DTYPE_F32)
    return check_transforms(spec, form->channels, err);
  return column_check_integers(column, input, err);
}

void dataset_label_weights(const struct dataset *dataset, const struct column_form *form,
                           const struct label_rule *labels, double *out) {
  const struct column *column = &dataset->columns[form->column];
  for (uint64_t s = 0; s < column->samples; s++) {
    out[s] = labels->classes > 0 ? 0 : labels->sample_denominator;
    for (uint64_t i = 0; labels->classes > 0 && i < (uint64_t)form->elems; i++)
      out[s] += label_weight(labels, column_integer(column, s * (uint64_t)form->elems + i));
  }
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
  for (size_t t = 0; form->is_transformed && t < spec->data->n_transforms; t++) {
    const struct transform_def *transform = transform_of(spec->data->transforms[t]);
    for (uint32_t s = 0; s < n; s++)
      transform->apply(spec->data->transforms[t], (float *)out + s * form->elems, form->elems,
                       form->channels);
  }
}

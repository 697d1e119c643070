/* Datasets: columns of samples and how they feed graph inputs. */
#include "worker/data/dataset.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/base/sha256.h"
#include "worker/data/format.h"
#include "worker/data/stamp.h"

/* The fourth counter of a sample's key: no node of a model, whose draws have keys of the same seed, too. */
static const uint64_t STREAM_TRANSFORMS = UINT64_MAX;

struct dataset {
  struct column columns[COLUMNS_MAX];
  int n_columns;
  char sha256[SHA256_HEX_SIZE];
  char stamp[SHA256_HEX_SIZE]; /* of its files, before they were read; empty: none can be made */
  pthread_mutex_t lock;
  struct err failure; /* the first of a sample; nothing while its code is 0 */
};

static int open_folder(const Weir__RunSpec *spec, const struct data_root *root, struct data_folder **out,
                       struct err *err) {
  return data_folder_open(root, spec->data->root ? spec->data->root : "", out, err);
}

static void hash_columns(struct dataset *dataset) {
  struct sha256 *sha = sha256_new();
  for (int c = 0; c < dataset->n_columns; c++)
    column_hash(&dataset->columns[c], sha);
  sha256_finish(sha, dataset->sha256);
}

int dataset_open(const Weir__RunSpec *spec, const Weir__DataSource *source, const struct data_root *root,
                 struct dataset **out, struct err *err) {
  const Weir__DataSource *train = spec->data->train;
  struct format_source files = {source == train ? "data.train" : "data.eval", NULL, source, train};
  struct dataset *dataset;
  *out = NULL;
  if (open_folder(spec, root, &files.folder, err))
    return err->code;
  dataset = mem_new(sizeof *dataset);
  pthread_mutex_init(&dataset->lock, NULL);
  if (!stamp_make(files.folder, source, dataset->stamp))
    *dataset->stamp = 0;
  if (format_open(&files, dataset->columns, &dataset->n_columns, err))
    goto out;
  for (int c = 1; c < dataset->n_columns; c++)
    if (dataset->columns[c].samples != dataset->columns[0].samples) {
      err_set(err, ERR_INVALID, "%s: %llu %s but %llu %s in %s", files.key,
              (unsigned long long)dataset->columns[0].samples, dataset->columns[0].name,
              (unsigned long long)dataset->columns[c].samples, dataset->columns[c].name,
              data_folder_path(files.folder));
      goto out;
    }
  hash_columns(dataset);
  if (dataset_check(dataset, err))
    goto out;
  *out = dataset;
  data_folder_put(files.folder);
  return 0;
out:
  data_folder_put(files.folder);
  dataset_close(dataset);
  return err->code;
}

bool dataset_is_as_opened(const struct dataset *dataset, const Weir__RunSpec *spec,
                          const Weir__DataSource *source, const struct data_root *root) {
  char stamp[SHA256_HEX_SIZE];
  struct data_folder *folder;
  struct err err = ERR_NONE;
  bool is_same = open_folder(spec, root, &folder, &err) == 0 && stamp_make(folder, source, stamp) &&
                 strcmp(stamp, dataset->stamp) == 0;
  data_folder_put(folder);
  return is_same;
}

void dataset_close(struct dataset *dataset) {
  if (!dataset)
    return;
  for (int c = 0; c < dataset->n_columns; c++)
    column_release(&dataset->columns[c]);
  pthread_mutex_destroy(&dataset->lock);
  free(dataset);
}

uint64_t dataset_samples(const struct dataset *dataset) {
  return dataset->columns[0].samples;
}

const char *dataset_sha256(const struct dataset *dataset) {
  return dataset->sha256;
}

int dataset_check(struct dataset *dataset, struct err *err) {
  enum err_code failed;
  pthread_mutex_lock(&dataset->lock);
  failed = dataset->failure.code;
  if (failed)
    *err = dataset->failure;
  pthread_mutex_unlock(&dataset->lock);
  if (failed)
    return failed;
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

int dataset_bind(const struct dataset *dataset, const char *name, const struct feed_rule *rule,
                 struct column_form *form, struct err *err) {
  form->column = find_column(dataset, name, rule->labels != NULL, err);
  if (form->column < 0)
    return err->code;
  return form_bind(&dataset->columns[form->column], rule, form, err);
}

const struct column *dataset_column(const struct dataset *dataset, const struct column_form *form) {
  return &dataset->columns[form->column];
}

bool dataset_labels_count_alike(const struct dataset *dataset, const struct column_form *form,
                                const struct label_rule *labels) {
  const struct column *column = &dataset->columns[form->column];
  for (uint64_t s = 0; !labels->weights && s < column->samples; s++)
    for (uint64_t i = column_first_new(column, s); i < (uint64_t)form->elems; i++)
      if (!label_is_class(labels, column_integer(column, s, i)))
        return false;
  return !labels->weights;
}

/* Labels that all count alike are counted, not added: of windows that overlap, each label but twice. */
static void count_labels(const struct column *column, uint64_t elems, const struct label_rule *labels,
                         double *out) {
  uint64_t first_new = column->samples > 1 ? column_first_new(column, 1) : 0, count = 0;
  for (uint64_t s = 0; s < column->samples; s++) {
    if (first_new == 0)
      count = 0;
    for (uint64_t i = 0; s > 0 && first_new > 0 && i < elems - first_new; i++)
      count -= label_is_class(labels, column_integer(column, s - 1, i));
    for (uint64_t i = column_first_new(column, s); i < elems; i++)
      count += label_is_class(labels, column_integer(column, s, i));
    out[s] = (double)count;
  }
}

void dataset_label_weights(const struct dataset *dataset, const struct column_form *form,
                           const struct label_rule *labels, double *out) {
  const struct column *column = &dataset->columns[form->column];
  if (labels->classes > 0 && !labels->weights) {
    count_labels(column, (uint64_t)form->elems, labels, out);
    return;
  }
  for (uint64_t s = 0; s < column->samples; s++) {
    out[s] = labels->classes > 0 ? 0 : labels->sample_denominator;
    for (uint64_t i = 0; labels->classes > 0 && i < (uint64_t)form->elems; i++)
      out[s] += label_weight(labels, column_integer(column, s, i));
  }
}

/* The first error is the one that is told. */
static void dataset_remember(struct dataset *dataset, const struct err *err) {
  pthread_mutex_lock(&dataset->lock);
  if (!dataset->failure.code)
    dataset->failure = *err;
  pthread_mutex_unlock(&dataset->lock);
}

/* The samples of one call, on their way through the transforms one after the other. */
struct reading {
  const struct column *column;
  const struct column_form *form;
  struct transforms_run run;
  struct sample sample;
};

static int begin_sample(struct reading *reading, uint64_t index, struct err *err) {
  const struct column *column = reading->column;
  const struct column_form *form = reading->form;
  struct sample *sample = &reading->sample;
  const void *data;
  sample_set_dense(sample, form->image, column->dtype, NULL);
  if (column->source)
    return column->source->read(column->state, index, sample, err);
  data = column_sample(column, index);
  if (column->dtype == DTYPE_F32 || column->dtype == DTYPE_U8) {
    sample_set_dense(sample, form->image, column->dtype, data);
    return 0;
  }
  if (!sample_renew(sample, form->image))
    return err_set(err, ERR_NO_MEMORY, "no memory for a sample");
  column_read_f32(column, index, (float *)(uintptr_t)sample->data);
  return 0;
}

/* Writes the sample to sample->out. */
static int finish_sample(const struct column_form *form, struct sample *sample, struct err *err) {
  const struct shape have = {3, {sample->shape.channels, sample->shape.height, sample->shape.width}};
  char have_text[96], want_text[96];
  if (!form_fits(&have, &form->wanted))
    return err_set(
        err, ERR_INVALID,
        "is %s after the transforms, and the model wants %s: end data.transforms with a size, as in "
        "{resize: {size: [H, W]}}",
        shape_text(&have, have_text, sizeof have_text),
        shape_text(&form->wanted, want_text, sizeof want_text));
  if (sample->data == sample->out || sample_floats(sample)) {
    sample_write(sample, sample->out);
    return 0;
  }
  return err_set(err, ERR_NO_MEMORY, "no memory for a sample");
}

/* key: of the sample in the run's stream. */
static int read_sample(struct reading *reading, uint64_t index, uint64_t key, struct err *err) {
  const struct column *column = reading->column;
  if (begin_sample(reading, index, err))
    return err->code;
  if (!transforms_apply(&reading->run, key, &reading->sample, err) &&
      !finish_sample(reading->form, &reading->sample, err))
    return 0;
  if (column->source)
    return err_prefix(err, "%s", column->source->name(column->state, index));
  return err_prefix(err, "%s: sample %llu", column->name, (unsigned long long)index);
}

static void read_images(struct dataset *dataset, const struct column_form *form,
                        const struct dataset_read *read, float *out) {
  const struct column *column = &dataset->columns[form->column];
  size_t sample_bytes = (size_t)form->elems * sizeof *out;
  struct reading reading = {
      .column = column, .form = form, .sample = {.scratch = read->scratch, .out_elems = form->elems}};
  struct sample_kind kind = {column->dtype, form->image.channels};
  struct err err = ERR_NONE;
  transforms_begin(&form->transforms, kind, read->scratch, &reading.run, &err);
  for (uint32_t s = 0; s < read->n; s++, out += form->elems) {
    uint64_t key = random_key(read->seed, read->place + s, 0, STREAM_TRANSFORMS);
    reading.sample.out = out;
    if (err.code || read_sample(&reading, read->indices[s], key, &err))
      memset(out, 0, sample_bytes);
  }
  if (err.code)
    dataset_remember(dataset, &err);
}

void dataset_read(struct dataset *dataset, const struct column_form *form, const struct dataset_read *read,
                  void *out) {
  const struct column *column = &dataset->columns[form->column];
  size_t sample_bytes = (size_t)form->elems * dtype_size(form->dtype);
  if (form->dtype == DTYPE_F32 && (form->transforms.n || column->source)) {
    read_images(dataset, form, read, out);
    return;
  }
  for (uint32_t s = 0; s < read->n; s++) {
    void *to = (char *)out + s * sample_bytes;
    if (form->dtype == DTYPE_F32)
      column_read_f32(column, read->indices[s], to);
    else
      column_read_integers(column, read->indices[s], form->dtype, to);
  }
}

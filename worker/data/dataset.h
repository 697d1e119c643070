/* Datasets: named columns of equally shaped samples, read through formats (rows of format.def) and turned
   into graph inputs by transforms (rows of transform.def). */
#ifndef WEIR_WORKER_DATA_DATASET_H
#define WEIR_WORKER_DATA_DATASET_H

#include "worker/data/data_root.h"
#include "worker/data/form.h"

struct dataset;

/* Opens a source of spec->data below the data root. Errors: those of data_folder_open and data_folder_file;
   INVALID or CORRUPT naming the key (data.train or data.eval), file and cause (cut short, not gzip where it
   should be, wrong magic, counts that differ). */
int dataset_open(const Weir__RunSpec *spec, const Weir__DataSource *source, const struct data_root *root,
                 struct dataset **out, struct err *err);
void dataset_close(struct dataset *dataset); /* NULL is ignored */

uint64_t dataset_samples(const struct dataset *dataset);
const char *dataset_sha256(const struct dataset *dataset); /* hex, of its content, whatever the files' form */

/* Whether the files of the source that it was opened from are as they were then, by what the file system says
   of them. False also where it says too little: of a folder of images. Any thread. */
bool dataset_is_as_opened(const struct dataset *dataset, const Weir__RunSpec *spec,
                          const Weir__DataSource *source, const struct data_root *root);

/* Whether all that was read was in the files, and was what it should be: they may be cut, or the disk may
   fail, while they are in use, and a sample that is made when it is read may be damaged. Errors: the first,
   naming the file. Any thread. */
int dataset_check(struct dataset *dataset, struct err *err);

/* Finds the column that feeds a graph input. name "": for labels the column "labels", else the first other
   one. Checks that samples and transforms fit; of labels, that the shapes are the same but for dimensions of
   1, that classes are known or ignored, and that targets are finite. Errors: those of form_bind. */
int dataset_bind(const struct dataset *dataset, const char *name, const struct feed_rule *rule,
                 struct column_form *form, struct err *err);

const struct column *dataset_column(const struct dataset *dataset, const struct column_form *form);

/* Whether all of the bound labels of classes count, and alike: each sample then adds form->elems. */
bool dataset_labels_count_alike(const struct dataset *dataset, const struct column_form *form,
                                const struct label_rule *labels);

/* What the labels of each sample add to the denominator of a mean: out f64[samples]. form: of bound labels.
 */
void dataset_label_weights(const struct dataset *dataset, const struct column_form *form,
                           const struct label_rule *labels, double *out);

/* Which samples are read, and what random transforms draw from. */
struct dataset_read {
  const uint64_t *indices;
  uint32_t n;
  uint64_t seed;           /* the run's */
  uint64_t place;          /* of the first in the run's stream of samples: the others follow it */
  struct scratch *scratch; /* this thread's */
};

/* Writes dense elements, sample after sample: f32 after the form's transforms, integers as they are. out:
   [n, form->elems] of form->dtype. What the samples become depends on the arguments alone. A sample that
   cannot be read is zeros, and dataset_check says so. Any thread. */
void dataset_read(struct dataset *dataset, const struct column_form *form, const struct dataset_read *read,
                  void *out);

#endif

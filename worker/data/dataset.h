/* Datasets: named columns of equally shaped samples, read through formats (rows of format.def) and turned
   into graph inputs by transforms (rows of transform.def). */
#ifndef WEIR_WORKER_DATA_DATASET_H
#define WEIR_WORKER_DATA_DATASET_H

#include "common/graph/graph.h"
#include "common/graph/labels.h"
#include "spec.pb-c.h"

struct dataset;

/* How a column's samples become a graph input: what dataset_bind found to fit. */
struct column_form {
  int column;
  enum dtype dtype;    /* of the input: f32, i64, i32, u8 or bool */
  int64_t elems;       /* of one sample */
  int64_t channels;    /* f32: the input's dimension 1 when it has at least three, else 1 */
  bool is_transformed; /* f32 that are no labels: by the spec's transforms */
};

/* Opens a source of spec->data below data_root (the worker's --data-root; an absolute data.root must lie
   below it, a relative one is joined to it). Errors: INVALID, NOT_FOUND or CORRUPT naming the key (data.train
   or data.eval), file and cause (missing, cut short, not gzip where it should be, wrong magic, counts that
   differ).
 */
int dataset_open(const Weir__RunSpec *spec, const Weir__DataSource *source, const char *data_root,
                 struct dataset **out, struct err *err);
void dataset_close(struct dataset *dataset); /* NULL is ignored */

uint64_t dataset_samples(const struct dataset *dataset);
const char *dataset_sha256(const struct dataset *dataset); /* hex, of its content, whatever the files' form */

/* Whether all that was read was in the files: they may be cut, or the disk may fail, while they are in use.
   Errors: CORRUPT naming the file. Any thread. */
int dataset_check(const struct dataset *dataset, struct err *err);

/* Finds the column that feeds a graph input of that dtype and shape (first dimension: the batch). labels: the
   rule of the labels that it feeds; NULL: it feeds something else. name "": for labels the column "labels",
   else the first other one. Checks that samples and transforms fit; of labels, that the shapes are the same
   but for dimensions of 1, that classes are known or ignored, and that targets are finite. Errors: INVALID
   with what is wrong and where: "labels: sample 17 has label 12, the model has 10 classes". */
int dataset_bind(const struct dataset *dataset, const Weir__RunSpec *spec, const char *name,
                 const struct value *input, const struct label_rule *labels, struct column_form *form,
                 struct err *err);

/* What the labels of each sample add to the denominator of a mean: out f64[samples]. form: of bound labels.
 */
void dataset_label_weights(const struct dataset *dataset, const struct column_form *form,
                           const struct label_rule *labels, double *out);

/* Writes samples indices[0..n) as dense elements, one after the other: f32 after the spec's transforms
   (labels without), integers as they are. out: [n, form->elems] of form->dtype. Pure: any thread. */
void dataset_read(const struct dataset *dataset, const Weir__RunSpec *spec, const struct column_form *form,
                  const uint64_t *indices, uint32_t n, void *out);

#endif

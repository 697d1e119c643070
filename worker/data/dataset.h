/* Datasets: named columns of equally shaped samples, read through formats (rows of format.def) and turned
   into graph inputs by transforms (rows of transform.def). */
#ifndef WEIR_WORKER_DATA_DATASET_H
#define WEIR_WORKER_DATA_DATASET_H

#include "common/graph/graph.h"
#include "common/plan.h"
#include "spec.pb-c.h"

struct dataset;

/* Opens spec->data.train or .eval below data_root (the worker's --data-root; an absolute data.root must lie
   below it, a relative one is joined to it). Errors: INVALID or NOT_FOUND naming file and cause (missing, cut
   short, not gzip where it should be, wrong magic, counts that differ). */
int dataset_open(const Weir__RunSpec *spec, const Weir__DataSource *source, const char *data_root,
                 struct dataset **out, struct err *err);
void dataset_close(struct dataset *dataset); /* NULL is ignored */

uint64_t dataset_samples(const struct dataset *dataset);
void dataset_sha256(const struct dataset *dataset,
                    char hex[65]); /* of its content, whatever the files' form */

/* Column by name: -1 if there is none (dataset_columns names them for messages). */
int dataset_column(const struct dataset *dataset, const char *name);
const char *dataset_columns(const struct dataset *dataset); /* "images, labels" */

/* Checks that column's samples fit a graph input of that dtype and shape (first dimension: the batch), that
   transforms apply, and that labels lie in [0, classes) (classes 0: not checked). Reads the labels. Errors:
   INVALID with what is wrong, where: "labels: sample 17 has label 12, the model has 10 classes". */
int dataset_check(const struct dataset *dataset, int column, const struct value *input, int64_t classes,
                  struct err *err);

/* Writes samples indices[0..n) of a column as dense elements of `dtype` (f32 after transforms; i64 labels),
   one after the other. Pure: any thread. `context`: counters for random transforms. */
void dataset_read(const struct dataset *dataset, int column, enum dtype dtype, const uint64_t *indices,
                  uint32_t n, const Weir__RunSpec *spec, uint64_t step, void *out);

#endif

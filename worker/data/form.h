/* Forms: how a column's samples become a graph input. */
#ifndef WEIR_WORKER_DATA_FORM_H
#define WEIR_WORKER_DATA_FORM_H

#include "model/losses/labels.h"
#include "worker/data/column.h"
#include "worker/data/transform.h"

/* What form_bind found to fit. */
struct column_form {
  int column;                   /* of the dataset */
  enum dtype dtype;             /* of the input: f32, i64, i32, u8 or bool */
  struct shape wanted;          /* of one sample of the input */
  int64_t elems;                /* likewise */
  struct transforms transforms; /* of f32 that are no labels */
  struct image_shape image;     /* what they begin with; set for f32 that are no labels */
  struct image_shape fed;       /* likewise: what they end with */
};

/* What a graph input takes. */
struct feed_rule {
  const struct value *input;           /* its dtype and shape; the first dimension is the batch */
  const struct label_rule *labels;     /* of the labels that it takes; NULL: it takes something else */
  const struct transforms *transforms; /* of f32 that are no labels; their list outlives the form */
};

/* Whether the elements of a sample are those of an input, in their order: the shapes are the same but for
   neighbouring dimensions that one of them has as a single one, and but for dimensions of 1. [3,32,32] fits
   [3072] and [3,1024], and not [32,32,3]. */
bool form_fits(const struct shape *sample, const struct shape *input);

/* Of f32 that are no images: whether the sample's elements are finite. Errors: INVALID, with the column, the
   sample and its element. */
int form_check_finite(const struct column *column, uint64_t sample, struct err *err);

/* Whether the column can feed that graph input, and how. Sets all but form->column. Errors: INVALID with what
   is wrong and where: "labels: sample 17 has label 12, the model has 10 classes". */
int form_bind(const struct column *column, const struct feed_rule *rule, struct column_form *form,
              struct err *err);

#endif

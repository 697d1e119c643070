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
  int64_t elems;                /* of one sample of the input */
  struct transforms transforms; /* of f32 that are no labels */
  struct image_shape image;     /* what they begin with; set for f32 that are no labels */
  struct image_shape fed;       /* likewise: what they end with */
};

/* Whether the column can feed a graph input of that dtype and shape (first dimension: the batch), and how.
   labels: the rule of the labels that it feeds; NULL: it feeds something else. Sets all but form->column.
   Errors: INVALID with what is wrong and where: "labels: sample 17 has label 12, the model has 10 classes".
 */
int form_bind(const struct column *column, const struct value *input, const struct label_rule *labels,
              const struct transforms *transforms, struct column_form *form, struct err *err);

#endif

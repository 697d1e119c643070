/* Trained tensors of an export, as their weights come. */
#ifndef WEIR_CLIENT_FILES_TRAINED_TENSOR_H
#define WEIR_CLIENT_FILES_TRAINED_TENSOR_H

#include <stdbool.h>

#include "client/files/export.h"

/* The model that was trained, without its data. Errors: those of model_open. */
int submitted_model_open(const struct submitted_model *from, struct model **out, struct err *err);

/* An initializer that training changed. */
struct tensor_of_run {
  const struct shape *shape;
  uint64_t elems;
};
bool tensor_of_run(const struct model *model, int initializer,
                   struct tensor_of_run *out); /* false: it is not */

/* Elements of such a tensor, from `begin` on. */
struct tensor_part {
  int initializer;
  uint64_t begin, elems;
  const float *data;
};

/* Reads all weights, in the order in which they come, and gives them to `each` part by part. Errors: those of
   the weights and of `each`. */
int weights_each_part(const struct model *model, const struct weights_source *weights,
                      int (*each)(void *user, const struct tensor_part *part, struct err *err), void *user,
                      struct err *err);

#endif

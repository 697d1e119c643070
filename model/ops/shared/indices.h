/* Integer inputs that say where elements lie, i32 or i64; a negative one counts from the end. */
#ifndef WEIR_MODEL_OPS_SHARED_INDICES_H
#define WEIR_MODEL_OPS_SHARED_INDICES_H

#include "model/graph/op.h"

/* Input i is i32 or i64; else INVALID. */
int infer_check_indices(const struct graph *graph, const struct node *node, int input, struct err *err);

static inline int64_t index_raw(const struct tensor *indices, int64_t i) {
  return indices->dtype == DTYPE_I32 ? ((const int32_t *)indices->data)[i]
                                     : ((const int64_t *)indices->data)[i];
}

/* Of a dimension of n elements, in which indices_check has found every index. */
static inline int64_t index_at(const struct tensor *indices, int64_t i, int64_t n) {
  int64_t index = index_raw(indices, i);
  return index < 0 ? index + n : index;
}

/* Element i of the input lies in [-n, n). Errors: INVALID with it and its place. */
int index_check(const struct op_call *call, int input, int64_t i, int64_t n, struct err *err);

/* Every element of the input does. */
int indices_check(const struct op_call *call, int input, int64_t n, struct err *err);

#endif

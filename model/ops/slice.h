/* Which elements of a tensor a Slice takes. */
#ifndef WEIR_MODEL_OPS_SLICE_H
#define WEIR_MODEL_OPS_SLICE_H

#include "model/graph/op.h"

/* Of each dimension of the data; the counts are `out`. */
struct slice {
  int64_t start[RANK_MAX], step[RANK_MAX];
  struct shape out;
};

/* Of a Slice of data of shape `x`. Errors: INVALID; UNSUPPORTED for bounds that are not known. */
int slice_read(const struct graph *graph, const struct node *node, const struct shape *x, struct slice *slice,
               struct err *err);

/* Of a SliceGrad: the slice of a tensor `x` whose elements `dy` has. */
int slice_grad_read(const struct node *node, const struct shape *dy, struct slice *slice, struct shape *x,
                    struct err *err);

#endif

/* Where MaxUnpool puts elements back. */
#ifndef WEIR_MODEL_OPS_MAX_UNPOOL_H
#define WEIR_MODEL_OPS_MAX_UNPOOL_H

#include "model/graph/op.h"

/* The shape whose elements the indices of a MaxUnpool, or of its gradient, of x count: that of the result, or
   one that begins where the result does and is nowhere larger. Errors: INVALID. */
int max_unpool_indexed(const struct node *node, const struct shape *x, struct shape *indexed,
                       struct err *err);

#endif

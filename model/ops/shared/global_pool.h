/* What the pools over all spatial dimensions share. */
#ifndef WEIR_MODEL_OPS_SHARED_GLOBAL_POOL_H
#define WEIR_MODEL_OPS_SHARED_GLOBAL_POOL_H

#include "model/graph/op.h"

/* [n, c, spatial...] -> [n, c, 1...], all f32. Errors: INVALID, UNSUPPORTED. */
int global_pool_infer(struct graph *graph, const struct node *node, struct err *err);

/* x must have channels; else INVALID. */
int global_pool_check(const struct node *node, const struct shape *x, struct err *err);
struct shape global_pool_shape(const struct shape *x);

/* The elements of one channel of one sample. */
int64_t global_pool_elems(const struct shape *x);

#endif

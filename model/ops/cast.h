/* Conversion of a tensor to another type. */
#ifndef WEIR_MODEL_OPS_CAST_H
#define WEIR_MODEL_OPS_CAST_H

#include "model/graph/op.h"

/* Kernel and backward of Cast and CastLike: in[0] of any type -> out[0] of any type. */
int cast_ref(const struct op_call *call, struct err *err);
int cast_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

#endif

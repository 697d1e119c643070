/* What ops share whose output 0 has the bytes of input 0 (OP_ALIAS). */
#ifndef WEIR_MODEL_OPS_SHARED_ALIAS_H
#define WEIR_MODEL_OPS_SHARED_ALIAS_H

#include "model/graph/op.h"

/* op_def.backward: the gradient in the shape of the input. */
int alias_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

/* op_def.ref: copies, where the bytes are not already the same. */
int alias_ref(const struct op_call *call, struct err *err);

#endif

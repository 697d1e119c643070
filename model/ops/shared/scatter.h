/* What ScatterElements and ScatterND share: updates put into a copy of the data at places that indices name,
   and the gradients of both. */
#ifndef WEIR_MODEL_OPS_SHARED_SCATTER_H
#define WEIR_MODEL_OPS_SHARED_SCATTER_H

#include "model/ops/shared/places.h"

/* Output 0 is like the data, input 0; the updates, input 2, have its type and the shape `beside`. Errors:
   INVALID, UNSUPPORTED for a reduction that is not known or not of this type. */
int scatter_infer(struct graph *graph, const struct node *node, const struct shape *beside, struct err *err);

/* The ops of the gradient: `gather` where the reduction is a sum, else `grad`; the attributes of either that
   say which places. */
struct scatter_grad {
  const char *gather, *grad;
  struct attr_list places;
};
int scatter_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                     const struct scatter_grad *ops);

/* data, indices, updates -> out, which may be the data's bytes. Of updates of one place the last one stays,
   or all are reduced in their order. */
int scatter_updates(const struct op_call *call, struct places *places, struct err *err);

/* The gradient ops: dy, indices, data, updates, y -> d_data, d_updates, where the last three inputs are
   absent unless the reduction looks at them. */
int scatter_grad_infer(struct graph *graph, const struct node *node, const struct shape *beside,
                       struct err *err);
int scatter_grad(const struct op_call *call, struct places *places, struct err *err);

#endif

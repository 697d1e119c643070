/* Sums of any number of tensors with broadcasting. */
#ifndef WEIR_MODEL_OPS_SUM_H
#define WEIR_MODEL_OPS_SUM_H

#include "model/graph/op.h"

/* Shape inference and kernel of Sum: in[i] f32, broadcast -> out[0] f32. */
int sum_infer(struct graph *graph, const struct node *node, struct err *err);
int sum_ref(const struct op_call *call, struct err *err);

#endif

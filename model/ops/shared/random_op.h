/* What the ops that draw random numbers share. The numbers are a function of the run's seed, the step, the
   microbatch and the node, so that every worker draws the same ones; a model's `seed` attribute plays no
   part, as it would make all steps alike. */
#ifndef WEIR_MODEL_OPS_SHARED_RANDOM_OP_H
#define WEIR_MODEL_OPS_SHARED_RANDOM_OP_H

#include "model/graph/op.h"

/* The key of this execution's stream, for common/agree/random.h. */
uint64_t random_op_key(const struct op_call *call);

/* Output 0 is f32: of the shape in the attribute "shape" where the node has no inputs, else of input 0's. */
int random_op_infer(struct graph *graph, const struct node *node, struct err *err);

/* What is drawn does not depend on the input: no gradient is handed on. */
int random_op_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

#endif

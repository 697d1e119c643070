/* What families of elementwise ops of two tensors share besides their kernels. */
#ifndef WEIR_MODEL_OPS_SHARED_PAIRWISE_H
#define WEIR_MODEL_OPS_SHARED_PAIRWISE_H

#include "model/ops/shared/elementwise.h"

/* And, Or, Xor: bools to bools. */
int logic_infer(struct graph *graph, const struct node *node, struct err *err);
extern const struct op_case logic_cases[];

/* BitwiseAnd, BitwiseOr, BitwiseXor: integers to integers. */
int bitwise_infer(struct graph *graph, const struct node *node, struct err *err);
extern const struct op_case bitwise_cases[];

/* Less, LessOrEqual, Greater, GreaterOrEqual: numbers to bools. */
int order_infer(struct graph *graph, const struct node *node, struct err *err);
extern const struct op_case order_cases[];

/* Mul and Sub: numbers to numbers. */
extern const struct op_case arithmetic_cases[];

#endif

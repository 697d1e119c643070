/* What the ops share that normalise each row of a matrix by its own mean and variance, then scale and shift:
   LayerNormalization, InstanceNormalization and GroupNormalization. */
#ifndef WEIR_MODEL_OPS_ROW_NORM_H
#define WEIR_MODEL_OPS_ROW_NORM_H

#include "model/graph/op.h"

/* x f32[rows,n], dense. x, scale, bias: shapes of the same elements, of which those of scale and bias
   broadcast to that of x. */
struct row_norm {
  int64_t rows, n;
  struct shape x, scale, bias;
  bool has_bias;
};

/* What a node of each op normalises. Errors: INVALID. */
int row_norm_of_layer(struct row_norm *norm, const struct graph *graph, const struct node *node,
                      struct err *err);
int row_norm_of_instance(struct row_norm *norm, const struct graph *graph, const struct node *node,
                         struct err *err);
int row_norm_of_group(struct row_norm *norm, const struct graph *graph, const struct node *node,
                      struct err *err);

/* The element of scale, and of bias, for element i of x is i / run % channels. False where scale, without the
   1s before and behind, is not a stretch of x's dimensions, or bias has another shape. */
bool row_norm_channels(const struct row_norm *norm, int64_t *run, int64_t *channels);

/* Output 0 is like input 0; outputs 1 and 2, which ONNX's op need not have, are mean and inv_std f32[rows].
 */
int row_norm_infer(struct graph *graph, const struct node *node, const struct row_norm *norm,
                   struct err *err);

/* Sets out what RowNormGrad's attributes say. Errors: INVALID. */
int row_norm_of_grad(struct row_norm *norm, const struct graph *graph, const struct node *node,
                     struct err *err);

/* y = (x - mean) inv_std scale + bias, with the population's variance and inv_std = 1 / sqrt(variance +
   epsilon). in: x, scale, bias if any -> out: y, mean and inv_std f32[rows], if the node has them. */
int row_norm_ref(const struct op_call *call, const struct row_norm *norm, struct err *err);

/* Adds RowNormGrad for a node whose inputs are x, scale and bias, and whose outputs 1 and 2 are mean and
   inv_std, asked for or not. */
int row_norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                      const struct row_norm *norm, struct err *err);

#endif

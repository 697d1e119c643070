/* What NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss share: labels, their weights, and the reduction.
 */
#ifndef WEIR_MODEL_OPS_SHARED_CLASS_LOSS_H
#define WEIR_MODEL_OPS_SHARED_CLASS_LOSS_H

#include "model/graph/op.h"

enum class_reduction { CLASS_REDUCE_NONE, CLASS_REDUCE_SUM, CLASS_REDUCE_MEAN };

/* x f32[n, classes, inner...], labels i32 or i64[n, inner...], weights f32[classes] or absent. Sample (s, i)
   has its class k at (s * classes + k) * inner + i. */
struct class_loss {
  int64_t n, classes, inner;
  enum class_reduction reduction;
  bool has_ignored;
  int64_t ignored; /* the label of samples that do not count */
};

/* Of a node with labels in input 1 and weights in input 2. Errors: INVALID, UNSUPPORTED. */
int class_loss_init(struct class_loss *loss, const struct graph *graph, const struct node *node,
                    const struct shape *x, struct err *err);

/* Shape inference of both: x, input 0, is f32, and output 0 of class_loss_shape. */
int class_loss_infer(struct graph *graph, const struct node *node, struct err *err);

/* Output 0, or its gradient: a scalar, or with no reduction one element a sample. */
struct shape class_loss_shape(const struct class_loss *loss, const struct shape *x);

/* The label and the weight of sample i; the weight of one that is ignored is 0. */
int64_t class_loss_label(const struct op_call *call, int64_t i);
double class_loss_weight(const struct class_loss *loss, const struct op_call *call, int64_t i);

/* What each sample's loss counts in the result: 1, or 1 / the sum of weights. Errors: INVALID for a label
   that is no class, with its place. */
int class_loss_scale(const struct class_loss *loss, const struct op_call *call, double *scale,
                     struct err *err);

/* Adds the losses of samples one by one to out[0]. */
struct class_loss_sum {
  float *out;
  double total;
};
void class_loss_add(const struct class_loss *loss, struct class_loss_sum *sum, int64_t i, double value);
void class_loss_finish(const struct class_loss *loss, struct class_loss_sum *sum, double scale);

/* The attributes of the node and "shape", x's, for its gradient: attrs has room for node->n_attrs + 1. */
int class_loss_attrs(const struct node *node, const struct shape *x, struct attr *attrs);

#endif

/* The geometry of LinearCrossEntropy, for its kernels. */
#ifndef WEIR_MODEL_OPS_LINEAR_CROSS_ENTROPY_H
#define WEIR_MODEL_OPS_LINEAR_CROSS_ENTROPY_H

#include "model/ops/shared/class_rows.h"
#include "model/ops/shared/matrix.h"

/* Inputs, and outputs behind the sums. */
enum { LINEAR_HIDDEN, LINEAR_WEIGHT, LINEAR_BIAS, LINEAR_LABELS, LINEAR_CLASS_WEIGHTS, LINEAR_INPUTS };
enum { LINEAR_GRADS = CLASS_ROWS_SUMS, LINEAR_OUTPUTS = LINEAR_GRADS + 3 }; /* by hidden, weight and bias */

/* scores[rows, classes] = hidden[rows, features] weight[features, classes] + bias */
struct linear_sizes {
  int64_t rows, features, classes;
  bool is_transposed; /* the weight lies as [classes, features] */
};

struct linear_sizes linear_sizes_of(const struct graph *graph, const struct node *node);

static inline struct matrix linear_weight(const struct linear_sizes *sizes, const float *weight) {
  struct matrix as_it_lies = {weight, sizes->features, sizes->classes, sizes->classes, 1};
  struct matrix transposed = {weight, sizes->features, sizes->classes, 1, sizes->features};
  return sizes->is_transposed ? transposed : as_it_lies;
}

#endif

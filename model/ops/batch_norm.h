/* What the batch norm ops share. */
#ifndef WEIR_MODEL_OPS_BATCH_NORM_H
#define WEIR_MODEL_OPS_BATCH_NORM_H

#include "model/graph/op.h"

/* x f32[n, c, inner...]: element i of channel k of sample s is at (s * c + k) * inner + i. */
struct batch_norm {
  int64_t n, c, inner;
};

/* Which inputs of a node are x, which must have channels, and vectors f32[c]. */
struct batch_norm_inputs {
  int x, first_vector, last_vector;
};
/* Errors: INVALID, UNSUPPORTED through node_error. */
int batch_norm_init(struct batch_norm *bn, const struct graph *graph, const struct node *node,
                    struct batch_norm_inputs inputs, struct err *err);

struct batch_norm batch_norm_of(const struct shape *x);

/* Mean and population variance of channel k of x, in f64. */
void batch_norm_moments(const struct batch_norm *bn, const float *x, int64_t k, double *mean,
                        double *variance);

/* y = x * factor + offset in channel k. */
struct affine {
  double factor, offset;
};
void batch_norm_apply(const struct batch_norm *bn, const float *x, float *y, int64_t k, struct affine affine);

#endif

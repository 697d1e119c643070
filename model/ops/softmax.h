/* What Softmax and LogSoftmax share: along which elements they normalise. */
#ifndef WEIR_MODEL_OPS_SOFTMAX_H
#define WEIR_MODEL_OPS_SOFTMAX_H

#include "model/graph/op.h"

/* The tensor as [outer, n, inner]: element k of row (o, i) is at (o * n + k) * inner + i. Since opset 13 a
   row lies along `axis` (by default the last); before, it holds all dimensions from `axis` on (by default 1).
 */
struct softmax_rows {
  int64_t outer, n, inner;
};

int softmax_rows_init(struct softmax_rows *rows, const struct graph *graph, const struct node *node,
                      const struct shape *shape, struct err *err);

/* Shape inference of both and of their gradients: output 0 is like input 0, and the axis is one of its. */
int softmax_infer(struct graph *graph, const struct node *node, struct err *err);

/* A kernel of one row: out from a (and b) along n elements, `stride` apart. b is NULL with one input. */
typedef void softmax_row_fn(const float *a, const float *b, float *out, int64_t n, int64_t stride);

/* Runs a kernel over every row of in[0] (and in[1]) into out[0]. */
int softmax_each_row(const struct op_call *call, softmax_row_fn *row, struct err *err);

/* Adds a node `op` (dy, y -> dx) with the forward node's attributes. */
int softmax_add_grad(struct autodiff *ad, struct graph *graph, const struct node *node, const char *op);

extern const struct op_case softmax_cases[]; /* of both */

#endif

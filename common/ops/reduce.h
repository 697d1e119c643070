/* Sums along axes, for ReduceSum, ReduceMean and SumTo. */
#ifndef WEIR_COMMON_OPS_REDUCE_H
#define WEIR_COMMON_OPS_REDUCE_H

#include "common/graph/op.h"

/* out f32[to] = scale * the sum of x f32[from] over the dimensions along which `to` is 1 or absent; `to`
   broadcasts to `from`. Added in f64, in the order of x. Errors: NO_MEMORY. */
int reduce_sum_to(const struct op_call *call, const struct shape *from, const struct shape *to, double scale,
                  struct err *err);

/* The shape of in[0] with 1 along each reduced axis. ONNX: axes by attribute or, later, by input 1; none
   means all of them, or with noop_with_empty_axes, that nothing is reduced. */
int reduce_kept_shape(const struct graph *graph, const struct node *node, struct shape *kept,
                      struct err *err);

/* Shape inference of ReduceSum and ReduceMean. */
int reduce_infer(struct graph *graph, const struct node *node, struct err *err);

/* Adds to input 0 `scale` times the gradient of output 0, spread over the reduced axes. */
int reduce_backward(struct autodiff *ad, struct graph *graph, const struct node *node, float scale,
                    struct err *err);

#endif

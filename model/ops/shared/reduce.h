/* What the ops share that reduce a tensor along axes. */
#ifndef WEIR_MODEL_OPS_SHARED_REDUCE_H
#define WEIR_MODEL_OPS_SHARED_REDUCE_H

#include <stdlib.h>

#include "model/ops/shared/broadcast.h"

/* out f32[to] = scale * the sum of x f32[from] over the dimensions along which `to` is 1 or absent; `to`
   broadcasts to `from`. Added in f64, in the order of x. Errors: NO_MEMORY. */
int reduce_sum_to(const struct op_call *call, const struct shape *from, const struct shape *to, double scale,
                  struct err *err);

/* The shape of in[0] with 1 along each reduced axis. ONNX: axes by attribute or, later, by input 1; none
   means all of them, or with noop_with_empty_axes, that nothing is reduced. */
int reduce_kept_shape(const struct graph *graph, const struct node *node, struct shape *kept,
                      struct err *err);

/* Shape inference. f32: of functions of each element, where reducing nothing would still change it. number:
   of f32, i32 and i64. any: of u8 and bool, too. */
int reduce_infer_f32(struct graph *graph, const struct node *node, struct err *err);
int reduce_infer_number(struct graph *graph, const struct node *node, struct err *err);
int reduce_infer_any(struct graph *graph, const struct node *node, struct err *err);

/* True if exactly the spatial dimensions of x are reduced, so that a mean is a GlobalAveragePool. */
bool reduce_is_pool(const struct shape *x, const struct shape *kept);

/* How many elements of in[0] make one of the result. */
int64_t reduce_count(const struct op_call *call);

/* The gradient of output 0, or output 0 itself, as it would be with keepdims. */
int reduce_kept_grad(const struct autodiff *ad, struct graph *graph, const struct node *node);
int reduce_kept_output(struct graph *graph, const struct node *node);

/* Adds to input 0 `scale` times the gradient of output 0, spread over the reduced axes. */
int reduce_backward(struct autodiff *ad, struct graph *graph, const struct node *node, float scale,
                    struct err *err);

/* Shape inference of gradient ops whose inputs are dy, x and perhaps y, dy and y with the reduced axes kept.
 */
int reduce_grad_infer(struct graph *graph, const struct node *node, struct err *err);

/* Room for n totals, freed by the caller; NULL, with NO_MEMORY in err, if there is none. */
void *reduce_totals(const struct op_call *call, int64_t n, size_t size, struct err *err);

/* Defines `int function(call, err)`: each element of out is `finish` of the total a that begins as `start`
   and becomes `step` with each element x of in[0] that belongs to it, in order. n: how many these are. */
#define REDUCE_LOOP(function, type, wide, start, step_of, finish)                                            \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const type *in = call->in[0].data;                                                                       \
    type *out = call->out[0].data;                                                                           \
    int64_t elems = shape_elems(&call->out[0].shape), n = reduce_count(call);                                \
    struct broadcast walk;                                                                                   \
    struct shape kept;                                                                                       \
    wide *totals, a;                                                                                         \
    (void)n;                                                                                                 \
    if (reduce_kept_shape(call->graph, call->node, &kept, err) ||                                            \
        !(totals = reduce_totals(call, elems, sizeof *totals, err)))                                         \
      return err->code;                                                                                      \
    for (int64_t i = 0; i < elems; i++)                                                                      \
      totals[i] = start;                                                                                     \
    broadcast_init(&walk, &call->in[0].shape, &kept, NULL);                                                  \
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), in += walk.run) {                         \
      wide *total = totals + walk.at[0];                                                                     \
      a = *total;                                                                                            \
      for (int64_t j = 0; j < walk.run && !walk.step[0]; j++) {                                              \
        wide x = (wide)in[j];                                                                                \
        a = step_of;                                                                                         \
      }                                                                                                      \
      *total = a;                                                                                            \
      for (int64_t j = 0; j < walk.run && walk.step[0]; j++) {                                               \
        wide x = (wide)in[j];                                                                                \
        a = total[j];                                                                                        \
        total[j] = step_of;                                                                                  \
      }                                                                                                      \
    }                                                                                                        \
    for (int64_t i = 0; i < elems; i++) {                                                                    \
      a = totals[i];                                                                                         \
      out[i] = (type)(finish);                                                                               \
    }                                                                                                        \
    free(totals);                                                                                            \
    return ERR_OK;                                                                                           \
  }

/* Defines `int function(call, err)` that calls function_f32, function_i32 or function_i64, as the tensors
 * are. */
#define REDUCE_NUMBER(function)                                                                              \
  static int function(const struct op_call *call, struct err *err) {                                         \
    if (call->out[0].dtype == DTYPE_I32)                                                                     \
      return function##_i32(call, err);                                                                      \
    if (call->out[0].dtype == DTYPE_I64)                                                                     \
      return function##_i64(call, err);                                                                      \
    return function##_f32(call, err);                                                                        \
  }

/* What the cases of ops that reduce have in common; x: the input's type and values, "f32{apart}". */
#define REDUCE_CASES(x)                                                                                      \
  {.inputs = x "[2,3,4]"}, {.inputs = x "[2,3,4]", .attrs = "axes=0,-1 keepdims=0", .opset = 13},            \
      {.inputs = x "[2,3,4] i64[1]==-2", .attrs = "keepdims=0", .opset = 18}, {                              \
    .inputs = x "[]", .opset = 18                                                                            \
  }
#define REDUCE_DRAWN_CASE(x)                                                                                 \
  {                                                                                                          \
    .inputs = x "[a,b,c] x", .attrs = "keepdims=k",                                                          \
    .draw = "a=1..3 b=1..4 c=1..4 k=0|1 x=i64[1]==0|i64[1]==-1|i64[2]==0,2|i64[2]==-2,-1|-", .opset = 18     \
  }

#endif

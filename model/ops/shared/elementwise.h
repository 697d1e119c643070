/* Rows and kernels of elementwise ops, made from the expression that each computes. */
#ifndef WEIR_MODEL_OPS_SHARED_ELEMENTWISE_H
#define WEIR_MODEL_OPS_SHARED_ELEMENTWISE_H

#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"

/* The backward of an op of one tensor: adds its only gradient op, with the node's attributes, on dy and x, or
   on dy and y. */
int backward_from_input(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);
int backward_from_output(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

/* The backward of an op whose gradient is zero wherever there is one. */
int backward_zero(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err);

/* The `params` of the macros below: floats with the values of the attributes of their names. */
#define FLOAT_ATTR(name, otherwise) float name = node_attr_float(call->node, #name, otherwise)
#define FLOAT_ATTRS(name1, otherwise1, name2, otherwise2)                                                    \
  FLOAT_ATTR(name1, otherwise1);                                                                             \
  FLOAT_ATTR(name2, otherwise2)
#define NO_PARAMS (void)0

/* The compiler may compute several elements at once, though out may be in. */
#define ELEMENTWISE_FOR(i, elems) _Pragma("GCC ivdep") for (int64_t i = 0; i < (elems); i++)

/* Defines `int function(call, err)`: out to[] = expression(x) of in[0] from[]. */
#define UNARY_LOOP(function, from, to, params, expression)                                                   \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const from *in = call->in[0].data;                                                                       \
    to *out = call->out[0].data;                                                                             \
    int64_t elems = shape_elems(&call->out[0].shape);                                                        \
    params;                                                                                                  \
    (void)err;                                                                                               \
    ELEMENTWISE_FOR (i, elems) {                                                                             \
      from x = in[i];                                                                                        \
      out[i] = expression;                                                                                   \
    }                                                                                                        \
    return ERR_OK;                                                                                           \
  }

/* Of f32; and the same with attributes: FLOAT_ATTR(alpha, 1.0f). */
#define UNARY_REF(function, expression) UNARY_LOOP(function, float, float, NO_PARAMS, expression)
#define UNARY_REF_WITH(function, params, expression) UNARY_LOOP(function, float, float, params, expression)

/* Defines the kernel of a gradient op: dx = expression(dy, v), where v is x or y. */
#define UNARY_GRAD_REF(function, params, expression)                                                         \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const float *grads = call->in[0].data, *values = call->in[1].data;                                       \
    float *out = call->out[0].data;                                                                          \
    int64_t elems = shape_elems(&call->out[0].shape);                                                        \
    params;                                                                                                  \
    (void)err;                                                                                               \
    ELEMENTWISE_FOR (i, elems) {                                                                             \
      float dy = grads[i], v = values[i];                                                                    \
      out[i] = expression;                                                                                   \
    }                                                                                                        \
    return ERR_OK;                                                                                           \
  }

/* Defines the gradient op's row NAME_grad (dy, x or y -> dx, all of one shape), whose kernel is
   NAME_grad_ref, and the list NAME_gradients. */
#define UNARY_GRADIENT(symbol, op_type)                                                                      \
  static const struct op_def symbol##_grad = {.name = op_type,                                               \
                                              .domain = "ai.weir",                                           \
                                              .min_inputs = 2,                                               \
                                              .max_inputs = 2,                                               \
                                              .min_outputs = 1,                                              \
                                              .max_outputs = 1,                                              \
                                              .flags = OP_INPLACE | OP_POINTWISE,                            \
                                              .infer = infer_same_f32,                                       \
                                              .ref = symbol##_grad_ref};                                     \
  static const struct op_def *const symbol##_gradients[] = {&symbol##_grad, NULL};

/* One run of a binary loop, for operands that step or stay: constants, so that each form is a simple loop. */
#define BINARY_RUN(type, step_a, step_b, expression)                                                         \
  ELEMENTWISE_FOR (j, walk.run) {                                                                            \
    type x = a[walk.at[0] + (step_a)*j];                                                                     \
    type y = b[walk.at[1] + (step_b)*j];                                                                     \
    out[j] = expression;                                                                                     \
  }

/* Defines `int function(call, err)`: out to[] = expression(x, y) of in[0] and in[1], broadcast, from[]. */
#define BINARY_LOOP_TO(function, from, to, expression)                                                       \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const from *a = call->in[0].data, *b = call->in[1].data;                                                 \
    to *out = call->out[0].data;                                                                             \
    struct broadcast walk;                                                                                   \
    (void)err;                                                                                               \
    broadcast_init(&walk, &call->out[0].shape, &call->in[0].shape, &call->in[1].shape);                      \
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run)                          \
      if (walk.step[0] && walk.step[1])                                                                      \
        BINARY_RUN(from, 1, 1, expression)                                                                   \
      else if (walk.step[0])                                                                                 \
        BINARY_RUN(from, 1, 0, expression)                                                                   \
      else                                                                                                   \
        BINARY_RUN(from, 0, walk.step[1], expression)                                                        \
    return ERR_OK;                                                                                           \
  }

#define BINARY_LOOP(function, type, expression) BINARY_LOOP_TO(function, type, type, expression)

/* Defines `int function(call, err)`, which calls function_i32, _i64 or _u8 (bools, too), as the type of in[0]
   asks; then the same for function_f32 and function_integer. */
#define INTEGER_DISPATCH(function)                                                                           \
  static int function(const struct op_call *call, struct err *err) {                                         \
    switch (call->in[0].dtype) {                                                                             \
    case DTYPE_I32:                                                                                          \
      return function##_i32(call, err);                                                                      \
    case DTYPE_I64:                                                                                          \
      return function##_i64(call, err);                                                                      \
    default:                                                                                                 \
      return function##_u8(call, err);                                                                       \
    }                                                                                                        \
  }
#define TYPE_DISPATCH(function)                                                                              \
  static int function(const struct op_call *call, struct err *err) {                                         \
    return call->in[0].dtype == DTYPE_F32 ? function##_f32(call, err) : function##_integer(call, err);       \
  }

/* One expression for all types. Integers wrap, so they are computed unsigned. */
#define INTEGER_UNARY_REF(function, expression)                                                              \
  UNARY_LOOP(function##_i32, uint32_t, uint32_t, NO_PARAMS, expression)                                      \
  UNARY_LOOP(function##_i64, uint64_t, uint64_t, NO_PARAMS, expression)                                      \
  UNARY_LOOP(function##_u8, uint8_t, uint8_t, NO_PARAMS, expression)                                         \
  INTEGER_DISPATCH(function)
#define INTEGER_BINARY_REF(function, expression)                                                             \
  BINARY_LOOP(function##_i32, uint32_t, expression)                                                          \
  BINARY_LOOP(function##_i64, uint64_t, expression)                                                          \
  BINARY_LOOP(function##_u8, uint8_t, expression)                                                            \
  INTEGER_DISPATCH(function)
#define BINARY_REF(function, expression)                                                                     \
  BINARY_LOOP(function##_f32, float, expression)                                                             \
  INTEGER_BINARY_REF(function##_integer, expression)                                                         \
  TYPE_DISPATCH(function)

/* The same with each type's own order, into bool (0 or 1). */
#define COMPARE_REF(function, expression)                                                                    \
  BINARY_LOOP_TO(function##_f32, float, uint8_t, expression)                                                 \
  BINARY_LOOP_TO(function##_integer_i32, int32_t, uint8_t, expression)                                       \
  BINARY_LOOP_TO(function##_integer_i64, int64_t, uint8_t, expression)                                       \
  BINARY_LOOP_TO(function##_integer_u8, uint8_t, uint8_t, expression)                                        \
  INTEGER_DISPATCH(function##_integer)                                                                       \
  TYPE_DISPATCH(function)

#endif

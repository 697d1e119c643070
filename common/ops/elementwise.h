/* Kernels of elementwise ops, made from the expression that each computes. */
#ifndef WEIR_COMMON_OPS_ELEMENTWISE_H
#define WEIR_COMMON_OPS_ELEMENTWISE_H

#include <math.h>

#include "common/ops/broadcast.h"

/* Defines `int function(call, err)`: out f32 = expression(x) of in[0] f32. */
#define UNARY_REF(function, expression)                                                                      \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const float *in = call->in[0].data;                                                                      \
    float *out = call->out[0].data;                                                                          \
    int64_t elems = shape_elems(&call->out[0].shape);                                                        \
    (void)err;                                                                                               \
    for (int64_t i = 0; i < elems; i++) {                                                                    \
      float x = in[i];                                                                                       \
      out[i] = expression;                                                                                   \
    }                                                                                                        \
    return ERR_OK;                                                                                           \
  }

/* Defines `int function(call, err)`: out = expression(x, y) of in[0] and in[1], broadcast, all `type`. */
#define BINARY_LOOP(function, type, expression)                                                              \
  static int function(const struct op_call *call, struct err *err) {                                         \
    const type *a = call->in[0].data, *b = call->in[1].data;                                                 \
    type *out = call->out[0].data;                                                                           \
    struct broadcast walk;                                                                                   \
    (void)err;                                                                                               \
    broadcast_init(&walk, &call->out[0].shape, &call->in[0].shape, &call->in[1].shape);                      \
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run)                          \
      for (int64_t j = 0; j < walk.run; j++) {                                                               \
        type x = a[walk.at[0] + j * walk.step[0]];                                                           \
        type y = b[walk.at[1] + j * walk.step[1]];                                                           \
        out[j] = expression;                                                                                 \
      }                                                                                                      \
    return ERR_OK;                                                                                           \
  }

/* The same for every type that arithmetic supports. Integers wrap, so they are computed unsigned. */
#define BINARY_REF(function, expression)                                                                     \
  BINARY_LOOP(function##_f32, float, expression)                                                             \
  BINARY_LOOP(function##_i32, uint32_t, expression)                                                          \
  BINARY_LOOP(function##_i64, uint64_t, expression)                                                          \
  BINARY_LOOP(function##_u8, uint8_t, expression)                                                            \
  static int function(const struct op_call *call, struct err *err) {                                         \
    switch (call->out[0].dtype) {                                                                            \
    case DTYPE_I32:                                                                                          \
      return function##_i32(call, err);                                                                      \
    case DTYPE_I64:                                                                                          \
      return function##_i64(call, err);                                                                      \
    case DTYPE_U8:                                                                                           \
      return function##_u8(call, err);                                                                       \
    default:                                                                                                 \
      return function##_f32(call, err);                                                                      \
    }                                                                                                        \
  }

#endif

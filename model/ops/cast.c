/* Cast: conversion to another type (ONNX 6..19). f16 and bf16 are computed as f32. Reals are cut towards
   zero, and take the nearest value that the type has where they are beyond it; integers lose their high bits.
 */
#include "model/ops/cast.h"

#include "model/ops/shared/convert.h"
#include "model/ops/shared/elementwise.h"

static int cast_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  enum dtype to;
  if (!node_attr(node, "to"))
    return node_error(node, err, ERR_INVALID, "attribute 'to' is missing");
  if (infer_dtype_attr(node, "to", DTYPE_NONE, &to, err) ||
      infer_check_dtype(graph, node, 0, DTYPES_ALL, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = to, .shape = x.shape}, err);
}

#define CAST_FROM(name, from)                                                                                \
  UNARY_LOOP(cast_##name##_f32, from, float, NO_PARAMS, (float)x)                                            \
  UNARY_LOOP(cast_##name##_i32, from, int32_t, NO_PARAMS, (int32_t)x)                                        \
  UNARY_LOOP(cast_##name##_i64, from, int64_t, NO_PARAMS, (int64_t)x)                                        \
  UNARY_LOOP(cast_##name##_u8, from, uint8_t, NO_PARAMS, (uint8_t)x)                                         \
  UNARY_LOOP(cast_##name##_bool, from, uint8_t, NO_PARAMS, x != 0)

CAST_FROM(i32, int32_t)
CAST_FROM(i64, int64_t)
CAST_FROM(u8, uint8_t)
UNARY_LOOP(cast_f32_f32, float, float, NO_PARAMS, x)
UNARY_LOOP(cast_f32_i32, float, int32_t, NO_PARAMS, convert_i32(x))
UNARY_LOOP(cast_f32_i64, float, int64_t, NO_PARAMS, convert_i64(x))
UNARY_LOOP(cast_f32_u8, float, uint8_t, NO_PARAMS, convert_u8(x))
UNARY_LOOP(cast_f32_bool, float, uint8_t, NO_PARAMS, x != 0.0f)

#define CASTS_FROM(name)                                                                                     \
  {                                                                                                          \
    [DTYPE_F32] = cast_##name##_f32, [DTYPE_I32] = cast_##name##_i32, [DTYPE_I64] = cast_##name##_i64,       \
    [DTYPE_U8] = cast_##name##_u8, [DTYPE_BOOL] = cast_##name##_bool                                         \
  }

/* [from][to] */
static int (*const casts[DTYPE_BOOL + 1][DTYPE_BOOL + 1])(const struct op_call *, struct err *) = {
    [DTYPE_F32] = CASTS_FROM(f32), [DTYPE_I32] = CASTS_FROM(i32), [DTYPE_I64] = CASTS_FROM(i64),
    [DTYPE_U8] = CASTS_FROM(u8),   [DTYPE_BOOL] = CASTS_FROM(u8),
};

int cast_ref(const struct op_call *call, struct err *err) {
  return casts[call->in[0].dtype][call->out[0].dtype](call, err);
}

int cast_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  (void)graph, (void)err;
  autodiff_add(ad, node, 0, autodiff_grad(ad, node, 0));
  return ERR_OK;
}

static const struct op_case cast_cases[] = {
    {.inputs = "f32[a,b]", .attrs = "to=t", .draw = "a=1..3 b=1..5 t=1|10|16"},
    {.inputs = "f32[8]=-1.7,1.7,3e9,-1e20,1e20,nan,300,0", .attrs = "to=t", .draw = "t=2|6|7|9"},
    {.inputs = "i32[4]=-1,0,300,7", .attrs = "to=t", .draw = "t=1|2|6|7|9|10"},
    {.inputs = "i64[4]=-1,0,300,70000000000", .attrs = "to=t", .draw = "t=1|2|6|7|9|10"},
    {.inputs = "u8{256}[a,b]", .attrs = "to=t", .draw = "a=1..3 b=1..5 t=1|2|6|7|9|10"},
    {.inputs = "bool{2}[a,b]", .attrs = "to=t", .draw = "a=1..3 b=1..5 t=1|2|6|7|9|10"},
    {0},
};

const struct op_def op_Cast = {
    .name = "Cast",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = cast_infer,
    .backward = cast_backward,
    .ref = cast_ref,
    .cases = cast_cases,
};

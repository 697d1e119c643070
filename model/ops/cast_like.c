/* CastLike: conversion to the type of another tensor (ONNX 15..19). */
#include "model/ops/cast.h"
#include "model/ops/shared/infer.h"

static int cast_like_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  if (infer_check_dtype(graph, node, 0, DTYPES_ALL, err) ||
      infer_check_dtype(graph, node, 1, DTYPES_ALL, err))
    return err->code;
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = node_input(graph, node, 1)->dtype, .shape = x.shape}, err);
}

static const struct op_case cast_like_cases[] = {
    {.inputs = "f32[s] f32[2]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "i64[4]=-1,0,300,7 f32[]"},
    {.inputs = "f32[4]=-1.5,0,300,7 i32{2}[3]"},
    {0},
};

const struct op_def op_CastLike = {
    .name = "CastLike",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 15,
    .infer = cast_like_infer,
    .backward = cast_backward,
    .ref = cast_ref,
    .cases = cast_like_cases,
};

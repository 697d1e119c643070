/* BitwiseOr: bit by bit or of integers, with broadcasting (ONNX 18). */
#include "model/ops/shared/elementwise.h"

INTEGER_BINARY_REF(bitwise_or_ref, x | y)

static int bitwise_or_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_INTEGERS, DTYPE_NONE, err);
}

static const struct op_case bitwise_or_cases[] = {
    {.inputs = "i32{99}[a,b,c] i32{99}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64[3]=-5,7,123456789012 i64[3]=3,-2,99"},
    {.inputs = "u8{256}[2,3] u8{256}[]"},
    {0},
};

const struct op_def op_BitwiseOr = {
    .name = "BitwiseOr",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE,
    .infer = bitwise_or_infer,
    .ref = bitwise_or_ref,
    .cases = bitwise_or_cases,
};

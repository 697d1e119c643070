/* BitwiseNot: all bits of an integer inverted (ONNX 18). */
#include "model/ops/shared/elementwise.h"

INTEGER_UNARY_REF(bitwise_not_ref, ~x)

static int bitwise_not_infer(struct graph *graph, const struct node *node, struct err *err) {
  if (infer_check_dtype(graph, node, 0, DTYPES_INTEGERS, err))
    return err->code;
  return infer_same(graph, node, err);
}

static const struct op_case bitwise_not_cases[] = {
    {.inputs = "i32{99}[2,3]"},
    {.inputs = "i64[2]=-5,123456789012"},
    {.inputs = "u8{256}[2,3]"},
    {0},
};

const struct op_def op_BitwiseNot = {
    .name = "BitwiseNot",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE,
    .infer = bitwise_not_infer,
    .ref = bitwise_not_ref,
    .cases = bitwise_not_cases,
};

/* BitwiseOr: bit by bit or of integers, with broadcasting (ONNX 18). */
#include "model/ops/shared/pairwise.h"

INTEGER_BINARY_REF(bitwise_or_ref, x | y)

const struct op_def op_BitwiseOr = {
    .name = "BitwiseOr",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE,
    .infer = bitwise_infer,
    .ref = bitwise_or_ref,
    .cases = bitwise_cases,
};

/* BitwiseAnd: bit by bit and of integers, with broadcasting (ONNX 18). */
#include "model/ops/shared/pairwise.h"

INTEGER_BINARY_REF(bitwise_and_ref, x &y)

const struct op_def op_BitwiseAnd = {
    .name = "BitwiseAnd",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE,
    .infer = bitwise_infer,
    .ref = bitwise_and_ref,
    .cases = bitwise_cases,
};

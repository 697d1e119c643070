/* Ceil: elementwise least whole number that is not below x (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(ceil_ref, ceilf(x))

static const struct op_case ceil_cases[] = {
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Ceil = {
    .name = "Ceil",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_zero,
    .ref = ceil_ref,
    .cases = ceil_cases,
};

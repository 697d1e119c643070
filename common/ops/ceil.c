/* Ceil: elementwise least whole number that is not below x (ONNX 6..13). */
#include "common/ops/elementwise.h"

UNARY_REF(ceil_ref, ceilf(x))

static const struct op_case ceil_cases[] = {
{.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
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

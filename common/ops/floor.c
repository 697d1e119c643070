/* Floor: elementwise greatest whole number that is not above x (ONNX 6..13). */
#include "common/ops/elementwise.h"

UNARY_REF(floor_ref, floorf(x))

static const struct op_case floor_cases[] = {
{.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
{0},
};

const struct op_def op_Floor = {
    .name = "Floor",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_zero,
    .ref = floor_ref,
    .cases = floor_cases,
};

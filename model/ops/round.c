/* Round: elementwise nearest whole number, halves to the even one (ONNX 11). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(round_ref, rintf(x))

static const struct op_case round_cases[] = {
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[6]=-2.5,-1.5,-0.5,0.5,1.5,2.5", .is_not_smooth = true},
    {0},
};

const struct op_def op_Round = {
    .name = "Round",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_zero,
    .ref = round_ref,
    .cases = round_cases,
};

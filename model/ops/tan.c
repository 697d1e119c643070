/* Tan: elementwise tangent (ONNX 7). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(tan_ref, tanf(x))
UNARY_GRAD_REF(tan_grad_ref, NO_PARAMS, dy *(1.0f + v * v))

static const struct op_case tan_cases[] = {
    {.inputs = "f32{-1..1}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(tan, "TanGrad")

const struct op_def op_Tan = {
    .name = "Tan",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = tan_ref,
    .cases = tan_cases,
    .gradients = tan_gradients,
};

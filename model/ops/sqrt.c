/* Sqrt: elementwise square root (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(sqrt_ref, sqrtf(x))
UNARY_GRAD_REF(sqrt_grad_ref, NO_PARAMS, 0.5f / v * dy)

static const struct op_case sqrt_cases[] = {
    {.inputs = "f32{0.3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(sqrt, "SqrtGrad")

const struct op_def op_Sqrt = {
    .name = "Sqrt",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = sqrt_ref,
    .cases = sqrt_cases,
    .gradients = sqrt_gradients,
};

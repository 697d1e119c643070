/* Tanh: elementwise hyperbolic tangent (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(tanh_ref, tanhf(x))
UNARY_GRAD_REF(tanh_grad_ref, NO_PARAMS, dy *(1.0f - v * v))

static const struct op_case tanh_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(tanh, "TanhGrad")

const struct op_def op_Tanh = {
    .name = "Tanh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = tanh_ref,
    .cases = tanh_cases,
    .gradients = tanh_gradients,
};

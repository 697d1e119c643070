/* Atanh: elementwise inverse hyperbolic tangent (ONNX 9). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(atanh_ref, atanhf(x))
UNARY_GRAD_REF(atanh_grad_ref, NO_PARAMS, dy / (1.0f - v * v))

static const struct op_case atanh_cases[] = {
    {.inputs = "f32{-0.8..0.8}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(atanh, "AtanhGrad")

const struct op_def op_Atanh = {
    .name = "Atanh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = atanh_ref,
    .cases = atanh_cases,
    .gradients = atanh_gradients,
};

/* Asinh: elementwise inverse hyperbolic sine (ONNX 9). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(asinh_ref, asinhf(x))
UNARY_GRAD_REF(asinh_grad_ref, NO_PARAMS, dy / sqrtf(1.0f + v * v))

static const struct op_case asinh_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(asinh, "AsinhGrad")

const struct op_def op_Asinh = {
    .name = "Asinh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = asinh_ref,
    .cases = asinh_cases,
    .gradients = asinh_gradients,
};

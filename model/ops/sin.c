/* Sin: elementwise sine (ONNX 7). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(sin_ref, sinf(x))
UNARY_GRAD_REF(sin_grad_ref, NO_PARAMS, dy *cosf(v))

static const struct op_case sin_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(sin, "SinGrad")

const struct op_def op_Sin = {
    .name = "Sin",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = sin_ref,
    .cases = sin_cases,
    .gradients = sin_gradients,
};

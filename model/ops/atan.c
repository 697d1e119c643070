/* Atan: elementwise arc tangent (ONNX 7). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(atan_ref, atanf(x))
UNARY_GRAD_REF(atan_grad_ref, NO_PARAMS, dy / (1.0f + v * v))

static const struct op_case atan_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(atan, "AtanGrad")

const struct op_def op_Atan = {
    .name = "Atan",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = atan_ref,
    .cases = atan_cases,
    .gradients = atan_gradients,
};

/* Reciprocal: elementwise 1 / x (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(reciprocal_ref, 1.0f / x)
UNARY_GRAD_REF(reciprocal_grad_ref, NO_PARAMS, v *v * -dy)

static const struct op_case reciprocal_cases[] = {
    {.inputs = "f32{0.5..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32{-3..-0.5}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(reciprocal, "ReciprocalGrad")

const struct op_def op_Reciprocal = {
    .name = "Reciprocal",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = reciprocal_ref,
    .cases = reciprocal_cases,
    .gradients = reciprocal_gradients,
};

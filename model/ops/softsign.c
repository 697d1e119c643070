/* Softsign: elementwise x / (1 + |x|) (ONNX 1). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(softsign_ref, x / (1.0f + fabsf(x)))
UNARY_GRAD_REF(softsign_grad_ref, NO_PARAMS, dy / ((1.0f + fabsf(v)) * (1.0f + fabsf(v))))

static const struct op_case softsign_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(softsign, "SoftsignGrad")

const struct op_def op_Softsign = {
    .name = "Softsign",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = softsign_ref,
    .cases = softsign_cases,
    .gradients = softsign_gradients,
};

/* Exp: elementwise exponential (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(exp_ref, expf(x))
UNARY_GRAD_REF(exp_grad_ref, NO_PARAMS, v *dy)

static const struct op_case exp_cases[] = {
    {.inputs = "f32{-1..1}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(exp, "ExpGrad")

const struct op_def op_Exp = {
    .name = "Exp",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = exp_ref,
    .cases = exp_cases,
    .gradients = exp_gradients,
};

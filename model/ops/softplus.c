/* Softplus: elementwise log(1 + exp(x)), without overflow (ONNX 1). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(softplus_ref, (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))))
UNARY_GRAD_REF(softplus_grad_ref, NO_PARAMS, dy / (1.0f + expf(-v)))

static const struct op_case softplus_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[5]=-200,-30,0,30,200"},
    {0},
};

UNARY_GRADIENT(softplus, "SoftplusGrad")

const struct op_def op_Softplus = {
    .name = "Softplus",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = softplus_ref,
    .cases = softplus_cases,
    .gradients = softplus_gradients,
};

/* Selu: elementwise gamma x where positive, else gamma alpha (exp(x) - 1) (ONNX 6). */
#include "model/ops/shared/elementwise.h"

UNARY_REF_WITH(selu_ref, FLOAT_ATTRS(alpha, 1.67326319217681884765625f, gamma, 1.05070102214813232421875f),
               (x > 0.0f ? x : alpha * expm1f(x)) * gamma)
UNARY_GRAD_REF(selu_grad_ref,
               FLOAT_ATTRS(alpha, 1.67326319217681884765625f, gamma, 1.05070102214813232421875f),
               (v > 0.0f ? gamma : gamma * alpha * expf(v)) * dy)

static const struct op_case selu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=0.3f gamma=2.5f"},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(selu, "SeluGrad")

const struct op_def op_Selu = {
    .name = "Selu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = selu_ref,
    .cases = selu_cases,
    .gradients = selu_gradients,
};

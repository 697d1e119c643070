/* Celu: elementwise x where positive, else alpha (exp(x / alpha) - 1) (ONNX 12). */
#include "model/ops/shared/elementwise.h"

UNARY_REF_WITH(celu_ref, FLOAT_ATTR(alpha, 1.0f), x > 0.0f ? x : alpha * expm1f(x / alpha))
UNARY_GRAD_REF(celu_grad_ref, FLOAT_ATTR(alpha, 1.0f), v > 0.0f ? dy : dy * expf(v / alpha))

static const struct op_case celu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=2.5f"},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(celu, "CeluGrad")

const struct op_def op_Celu = {
    .name = "Celu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 12,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = celu_ref,
    .cases = celu_cases,
    .gradients = celu_gradients,
};

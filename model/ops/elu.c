/* Elu: elementwise x where positive, else alpha (exp(x) - 1) (ONNX 6). */
#include "model/ops/shared/elementwise.h"

UNARY_REF_WITH(elu_ref, FLOAT_ATTR(alpha, 1.0f), x > 0.0f ? x : alpha * expm1f(x))
UNARY_GRAD_REF(elu_grad_ref, FLOAT_ATTR(alpha, 1.0f), v > 0.0f ? dy : alpha * expf(v) * dy)

static const struct op_case elu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=0.3f"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=-0.7f"},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(elu, "EluGrad")

const struct op_def op_Elu = {
    .name = "Elu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = elu_ref,
    .cases = elu_cases,
    .gradients = elu_gradients,
};

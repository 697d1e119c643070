/* Relu: elementwise max(x, 0) (ONNX 6..14), and its gradient, which needs only the output. */
#include "model/ops/shared/elementwise.h"

UNARY_REF(relu_ref, x < 0.0f ? 0.0f : x)
UNARY_GRAD_REF(relu_grad_ref, NO_PARAMS, v > 0.0f ? dy : 0.0f)

static const struct op_case relu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[2,3,5,5]", .is_not_smooth = true},
    {0},
};

UNARY_GRADIENT(relu, "ReluGrad")

const struct op_def op_Relu = {
    .name = "Relu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = relu_ref,
    .cases = relu_cases,
    .gradients = relu_gradients,
};

/* ThresholdedRelu: elementwise x above alpha, else 0 (ONNX 10). */
#include "model/ops/shared/elementwise.h"

UNARY_REF_WITH(thresholded_relu_ref, FLOAT_ATTR(alpha, 1.0f), x > alpha ? x : 0.0f)
UNARY_GRAD_REF(thresholded_relu_grad_ref, FLOAT_ATTR(alpha, 1.0f), v > alpha ? dy : 0.0f)

static const struct op_case thresholded_relu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=-0.25f"},
    {.inputs = "f32{apart}[s]", .attrs = "alpha=0.2f", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(thresholded_relu, "ThresholdedReluGrad")

const struct op_def op_ThresholdedRelu = {
    .name = "ThresholdedRelu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 10,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = thresholded_relu_ref,
    .cases = thresholded_relu_cases,
    .gradients = thresholded_relu_gradients,
};

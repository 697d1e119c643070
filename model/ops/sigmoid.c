/* Sigmoid: elementwise 1 / (1 + exp(-x)) (ONNX 6..13). */
#include "model/ops/shared/elementwise.h"

UNARY_REF(sigmoid_ref, 1.0f / (1.0f + expf(-x)))
UNARY_GRAD_REF(sigmoid_grad_ref, NO_PARAMS, v *(1.0f - v) * dy)

static const struct op_case sigmoid_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[5]=-200,-30,0,30,200"},
    {0},
};

UNARY_GRADIENT(sigmoid, "SigmoidGrad")

const struct op_def op_Sigmoid = {
    .name = "Sigmoid",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = sigmoid_ref,
    .cases = sigmoid_cases,
    .gradients = sigmoid_gradients,
};

/* HardSigmoid: elementwise max(0, min(1, alpha x + beta)) (ONNX 6). */
#include "model/ops/shared/elementwise.h"

static inline float unit_clamped(float x) {
  x = x < 0.0f ? 0.0f : x;
  return x > 1.0f ? 1.0f : x;
}

UNARY_REF_WITH(hard_sigmoid_ref, FLOAT_ATTRS(alpha, 0.2f, beta, 0.5f), unit_clamped(beta + alpha * x))
UNARY_GRAD_REF(hard_sigmoid_grad_ref, FLOAT_ATTR(alpha, 0.2f), v > 0.0f && v < 1.0f ? alpha * dy : 0.0f)

static const struct op_case hard_sigmoid_cases[] = {
    {.inputs = "f32[2,4]=-4,-2,-1,0,1,2,3,0.5"},
    {.inputs = "f32[2,4]=-2.5,-2,-1,0,0.4,0.6,3,0.5", .attrs = "alpha=0.5f beta=0.6f"},
    {.inputs = "f32[]=0.7"},
    {.inputs = "f32{apart}[s]", .attrs = "alpha=5f", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(hard_sigmoid, "HardSigmoidGrad")

const struct op_def op_HardSigmoid = {
    .name = "HardSigmoid",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_output,
    .ref = hard_sigmoid_ref,
    .cases = hard_sigmoid_cases,
    .gradients = hard_sigmoid_gradients,
};

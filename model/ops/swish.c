/* Swish: elementwise x swish_sigmoid(alpha x) (ONNX 24). */
#include "model/ops/shared/elementwise.h"

static inline float swish_sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

static inline float swish_value(float x, float alpha) {
  return x * swish_sigmoid(alpha * x);
}

static inline float swish_slope(float x, float alpha) {
  float gate = swish_sigmoid(alpha * x);
  return gate + alpha * x * gate * (1.0f - gate);
}

UNARY_REF_WITH(swish_ref, FLOAT_ATTR(alpha, 1.0f), swish_value(x, alpha))
UNARY_GRAD_REF(swish_grad_ref, FLOAT_ATTR(alpha, 1.0f), swish_slope(v, alpha) * dy)

static const struct op_case swish_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32{-3..3}[s]", .attrs = "alpha=1.7f", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[6]=-200,-30,-4,4,30,200"},
    {0},
};

UNARY_GRADIENT(swish, "SwishGrad")

const struct op_def op_Swish = {
    .name = "Swish",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 24,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = swish_ref,
    .cases = swish_cases,
    .gradients = swish_gradients,
};

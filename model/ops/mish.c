/* Mish: elementwise x tanh(softplus(x)) (ONNX 18). */
#include "model/ops/shared/elementwise.h"

/* tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2), written so that nothing overflows. */
static inline float mish_gate(float x) {
  float e = expf(-fabsf(x));
  float n = x > 0.0f ? 1.0f + 2.0f * e : e * (e + 2.0f);
  return n / (n + (x > 0.0f ? 2.0f * e * e : 2.0f));
}

/* Its derivative: (1 - gate^2) sigmoid(x) */
static inline float gate_slope(float x) {
  float t = mish_gate(x);
  return (1.0f - t) * (1.0f + t) / (1.0f + expf(-x));
}

UNARY_REF(mish_ref, mish_gate(x) * x)
UNARY_GRAD_REF(mish_grad_ref, NO_PARAMS, (mish_gate(v) + v * gate_slope(v)) * dy)

static const struct op_case mish_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[6]=-200,-30,-4,4,30,200"},
    {.inputs = "f32[]"},
    {0},
};

UNARY_GRADIENT(mish, "MishGrad")

const struct op_def op_Mish = {
    .name = "Mish",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = mish_ref,
    .cases = mish_cases,
    .gradients = mish_gradients,
};

/* HardSwish: elementwise x max(0, min(1, x / 6 + 1/2)) (ONNX 14). */
#include "model/ops/shared/elementwise.h"

static inline float hard_swish_gate(float x) {
  float y = x / 6.0f + 0.5f;
  y = y < 0.0f ? 0.0f : y;
  return y > 1.0f ? 1.0f : y;
}

UNARY_REF(hard_swish_ref, hard_swish_gate(x) * x)
UNARY_GRAD_REF(hard_swish_grad_ref, NO_PARAMS, v <= -3.0f ? 0.0f : v < 3.0f ? dy * (v / 3.0f + 0.5f) : dy)

static const struct op_case hard_swish_cases[] = {
    {.inputs = "f32[2,5]=-4,-2,-1,0,1,2,3.5,0.5,-3.1,2.9"},
    {.inputs = "f32{-2.9..2.9}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[2,3,5,5]"},
    {.inputs = "f32[4]=-3,3,-4,4", .is_not_smooth = true},
    {0},
};

UNARY_GRADIENT(hard_swish, "HardSwishGrad")

const struct op_def op_HardSwish = {
    .name = "HardSwish",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 14,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = hard_swish_ref,
    .cases = hard_swish_cases,
    .gradients = hard_swish_gradients,
};

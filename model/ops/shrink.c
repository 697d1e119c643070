/* Shrink: elementwise x - bias above lambd, x + bias below -lambd, else 0 (ONNX 9, f32). */
#include "model/ops/shared/elementwise.h"

static inline bool is_outside(float x, float lambd) {
  return x < -lambd || x > lambd;
}

static inline float shrink_value(float x, float lambd, float bias) {
  if (!is_outside(x, lambd))
    return 0.0f;
  return x < -lambd ? x + bias : x - bias;
}

UNARY_REF_WITH(shrink_ref, FLOAT_ATTRS(lambd, 0.5f, bias, 0.0f), shrink_value(x, lambd, bias))
UNARY_GRAD_REF(shrink_grad_ref, FLOAT_ATTR(lambd, 0.5f), is_outside(v, lambd) ? dy : 0.0f)

static const struct op_case shrink_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "lambd=0.25f bias=0.25f"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "lambd=1.75f bias=0.5f"},
    {.inputs = "f32{apart}[s]", .attrs = "lambd=0.2f bias=0.1f", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

UNARY_GRADIENT(shrink, "ShrinkGrad")

const struct op_def op_Shrink = {
    .name = "Shrink",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = backward_from_input,
    .ref = shrink_ref,
    .cases = shrink_cases,
    .gradients = shrink_gradients,
};

/* Gelu: elementwise x times the normal distribution's probability of less than x, exactly or by the usual
   approximation with tanh (ONNX 20). */
#include <string.h>

#include "model/ops/shared/elementwise.h"

static const float SQRT_HALF = 0.70710678f, INV_SQRT_2PI = 0.39894228f;
static const float TANH_SCALE = 0.79788456f, TANH_CUBIC = 0.044715f; /* sqrt(2 / pi) */

static inline float gelu_probability(float x) {
  return 0.5f * (1.0f + erff(x * SQRT_HALF));
}

static inline float exact_slope(float x) {
  return gelu_probability(x) + x * INV_SQRT_2PI * expf(-0.5f * x * x);
}

static inline float gelu_approximation(float x) {
  return 0.5f * (1.0f + tanhf(TANH_SCALE * (x + TANH_CUBIC * x * x * x)));
}

static inline float approximate_slope(float x) {
  float p = gelu_approximation(x), inner = TANH_SCALE * (1.0f + 3.0f * TANH_CUBIC * x * x);
  return p + 2.0f * x * p * (1.0f - p) * inner;
}

UNARY_REF(gelu_exact, gelu_probability(x) * x)
UNARY_REF(gelu_tanh, gelu_approximation(x) * x)
UNARY_GRAD_REF(gelu_exact_grad, NO_PARAMS, exact_slope(v) * dy)
UNARY_GRAD_REF(gelu_tanh_grad, NO_PARAMS, approximate_slope(v) * dy)

static bool is_approximate(const struct node *node) {
  return strcmp(node_attr_string(node, "approximate", "none"), "tanh") == 0;
}

static int gelu_infer(struct graph *graph, const struct node *node, struct err *err) {
  const char *approximate = node_attr_string(node, "approximate", "none");
  if (!is_approximate(node) && strcmp(approximate, "none") != 0)
    return node_error(node, err, ERR_INVALID, "approximate is '%s'; it must be none or tanh", approximate);
  return infer_same_f32(graph, node, err);
}

static int gelu_ref(const struct op_call *call, struct err *err) {
  return is_approximate(call->node) ? gelu_tanh(call, err) : gelu_exact(call, err);
}

static int gelu_grad_ref(const struct op_call *call, struct err *err) {
  return is_approximate(call->node) ? gelu_tanh_grad(call, err) : gelu_exact_grad(call, err);
}

static const struct op_case gelu_cases[] = {
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32{-3..3}[s]", .attrs = "approximate=m", .draw = "s=|1|7|2,5|3,1,4 m=tanh|none"},
    {.inputs = "f32[6]=-30,-4,-1.5,1.5,4,30"},
    {.inputs = "f32[6]=-30,-4,-1.5,1.5,4,30", .attrs = "approximate=tanh"},
    {0},
};

UNARY_GRADIENT(gelu, "GeluGrad")

const struct op_def op_Gelu = {
    .name = "Gelu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 20,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = gelu_infer,
    .backward = backward_from_input,
    .ref = gelu_ref,
    .cases = gelu_cases,
    .gradients = gelu_gradients,
};

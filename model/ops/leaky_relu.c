/* LeakyRelu: elementwise x where positive, else alpha x (ONNX 6..16). */
#include "model/ops/shared/elementwise.h"

UNARY_REF_WITH(leaky_relu_ref, FLOAT_ATTR(alpha, 0.01f), x > 0.0f ? x : alpha * x)
UNARY_GRAD_REF(leaky_relu_grad_ref, FLOAT_ATTR(alpha, 0.01f), v > 0.0f ? dy : alpha * dy)

/* The output has the sign of the input unless alpha is negative, and is kept for other reasons. */
static int leaky_relu_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  if (node_attr_float(node, "alpha", 0.01f) >= 0.0f)
    return backward_from_output(ad, graph, node, err);
  return backward_from_input(ad, graph, node, err);
}

static const struct op_case leaky_relu_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=0.3f"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5", .attrs = "alpha=-0.7f"},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "f32[4]=0,0,1,-1", .is_not_smooth = true},
    {0},
};

UNARY_GRADIENT(leaky_relu, "LeakyReluGrad")

const struct op_def op_LeakyRelu = {
    .name = "LeakyRelu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .backward = leaky_relu_backward,
    .ref = leaky_relu_ref,
    .cases = leaky_relu_cases,
    .gradients = leaky_relu_gradients,
};

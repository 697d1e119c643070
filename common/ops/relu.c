/* Relu: elementwise max(x, 0) (ONNX 6..14), and its gradient, which needs only the output. */
#include "common/ops/backward.h"
#include "common/ops/elementwise.h"
#include "common/ops/infer.h"

UNARY_REF(relu_ref, x < 0.0f ? 0.0f : x)

static int relu_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "ReluGrad", dy, node->outputs[0]));
  return ERR_OK;
}

BINARY_LOOP(relu_grad_ref, float, y > 0.0f ? x : 0.0f)

static const struct op_case relu_cases[] = {
    {.inputs = "f32[2,4]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2"},
    {.inputs = "f32[]=0.7"},
    {.inputs = "f32[2,3,5,5]", .is_not_smooth = true},
    {.inputs = "f32{apart}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

static const struct op_def relu_grad;
static const struct op_def *const relu_gradients[] = {&relu_grad, NULL};

const struct op_def op_Relu = {
    .name = "Relu",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .backward = relu_backward,
    .ref = relu_ref,
    .cases = relu_cases,
    .gradients = relu_gradients,
};

/* dy, y -> dx, all of one shape */
static const struct op_def relu_grad = {
    .name = "ReluGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .ref = relu_grad_ref,
};

/* Tanh: elementwise hyperbolic tangent (ONNX 6..13). */
#include "common/ops/backward.h"
#include "common/ops/elementwise.h"
#include "common/ops/infer.h"

UNARY_REF(tanh_ref, (float)tanh(x))

/* dx = dy (1 - y y) */
static int tanh_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  int y = node->outputs[0];
  int slope =
      backward_binary(graph, "Sub", graph_add_constant_f32(graph, 1.0f), backward_binary(graph, "Mul", y, y));
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Mul", dy, slope));
  return ERR_OK;
}

static const struct op_case tanh_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[]"},
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Tanh = {
    .name = "Tanh",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .backward = tanh_backward,
    .ref = tanh_ref,
    .cases = tanh_cases,
};

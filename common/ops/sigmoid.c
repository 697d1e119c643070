/* Sigmoid: elementwise 1 / (1 + exp(-x)) (ONNX 6..13). */
#include "common/ops/backward.h"
#include "common/ops/elementwise.h"
#include "common/ops/infer.h"

UNARY_REF(sigmoid_ref, (float)(1.0 / (1.0 + exp(-(double)x))))

/* dx = dy y (1 - y) */
static int sigmoid_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  int y = node->outputs[0];
  int slope =
      backward_binary(graph, "Mul", y, backward_binary(graph, "Sub", graph_add_constant_f32(graph, 1.0f), y));
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Mul", dy, slope));
  return ERR_OK;
}

static const struct op_case sigmoid_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[]"},
    {.inputs = "f32{-3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Sigmoid = {
    .name = "Sigmoid",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .backward = sigmoid_backward,
    .ref = sigmoid_ref,
    .cases = sigmoid_cases,
};

/* Mul: elementwise product with broadcasting (ONNX 7..14). */
#include "model/ops/shared/pairwise.h"

BINARY_REF(mul_ref, x *y)

static int mul_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  for (int i = 0; i < 2; i++)
    if (autodiff_wants(ad, node, i))
      backward_add_summed(ad, graph, node, i, backward_binary(graph, "Mul", dy, node->inputs[1 - i]));
  return ERR_OK;
}

const struct op_def op_Mul = {
    .name = "Mul",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = mul_backward,
    .ref = mul_ref,
    .cases = arithmetic_cases,
};

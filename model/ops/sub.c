/* Sub: elementwise difference with broadcasting (ONNX 7..14). */
#include "model/ops/shared/pairwise.h"

BINARY_REF(sub_ref, x - y)

static int sub_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  if (autodiff_wants(ad, node, 0))
    backward_add_summed(ad, graph, node, 0, dy);
  if (autodiff_wants(ad, node, 1)) {
    struct shape shape = node_input(graph, node, 1)->shape;
    autodiff_add(ad, node, 1, backward_unary(graph, "Neg", backward_sum_to(graph, dy, &shape)));
  }
  return ERR_OK;
}

const struct op_def op_Sub = {
    .name = "Sub",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = sub_backward,
    .ref = sub_ref,
    .cases = arithmetic_cases,
};

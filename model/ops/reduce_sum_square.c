/* ReduceSumSquare: the sum of squares along axes (ONNX 1..18: axes by attribute before 18, by input since).
 */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

static int reduce_sum_square_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                      struct err *err) {
  int dy = backward_scale(graph, reduce_kept_grad(ad, graph, node), 2.0f);
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Mul", node->inputs[0], dy));
  return ERR_OK;
}

REDUCE_LOOP(reduce_sum_square_ref, float, double, 0.0, a + x * x, a)

static const struct op_case reduce_sum_square_cases[] = {
    REDUCE_CASES("f32"),
    REDUCE_DRAWN_CASE("f32"),
    {0},
};

const struct op_def op_ReduceSumSquare = {
    .name = "ReduceSumSquare",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_f32,
    .backward = reduce_sum_square_backward,
    .ref = reduce_sum_square_ref,
    .cases = reduce_sum_square_cases,
};

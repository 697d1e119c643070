/* ReduceLogSum: the logarithm of the sum along axes (ONNX 1..18: axes by attribute before 18, by input
 * since). */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

/* dy / sum(x) at every element */
static int reduce_log_sum_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                   struct err *err) {
  int dy = reduce_kept_grad(ad, graph, node), y = reduce_kept_output(graph, node);
  struct shape x = node_input(graph, node, 0)->shape;
  (void)err;
  dy = backward_binary(graph, "Div", dy, backward_unary(graph, "Exp", y));
  autodiff_add(ad, node, 0, backward_broadcast_to(graph, dy, &x));
  return ERR_OK;
}

REDUCE_LOOP(reduce_log_sum_ref, float, double, 0.0, a + x, log(a))

static const struct op_case reduce_log_sum_cases[] = {
    REDUCE_CASES("f32{0.5..2}"),
    REDUCE_DRAWN_CASE("f32{0.5..2}"),
    {0},
};

const struct op_def op_ReduceLogSum = {
    .name = "ReduceLogSum",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_f32,
    .backward = reduce_log_sum_backward,
    .ref = reduce_log_sum_ref,
    .cases = reduce_log_sum_cases,
};

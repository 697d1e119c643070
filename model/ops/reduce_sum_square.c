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
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=0,-1 keepdims=0", .opset = 13},
    {.inputs = "f32[2,3,4] i64[1]==-2", .attrs = "keepdims=0", .opset = 18},
    {.inputs = "f32[]", .opset = 18},
    {.inputs = "f32[a,b,c] x",
     .attrs = "keepdims=k",
     .draw = "a=1..3 b=1..4 c=1..4 k=0|1 x=i64[1]==0|i64[1]==-1|i64[2]==0,2|i64[2]==-2,-1|-",
     .opset = 18},
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

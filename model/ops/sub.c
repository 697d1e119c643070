/* Sub: elementwise difference with broadcasting (ONNX 7..14). */
#include "model/ops/shared/elementwise.h"

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

static const struct op_case sub_cases[] = {
    {.inputs = "f32[2,3,4] f32[2,3,4]"},
    {.inputs = "f32[2,3,4,5] f32[5]"},
    {.inputs = "f32[3,1,2] f32[4,1]"},
    {.inputs = "f32[] f32[2,3]"},
    {.inputs = "f32[2,3] f32[]"},
    {.inputs = "f32[2,1,4,1] f32[2,3,1,5]"},
    {.inputs = "i64{9}[2,3] i64{9}[3]"},
    {.inputs = "f32[a,b,c] f32[d,e,c]", .draw = "a=1..4 b=1..4 c=1..5 d=1|a e=1|b"},
    {.inputs = "f32[s] f32[c]", .draw = "c=1..5 s=c|2,c|3,1,c|1|"},
    {0},
};

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
    .cases = sub_cases,
};

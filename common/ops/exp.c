/* Exp: elementwise exponential (ONNX 6..13). */
#include "common/ops/backward.h"
#include "common/ops/elementwise.h"
#include "common/ops/infer.h"

UNARY_REF(exp_ref, (float)exp(x))

/* dx = dy y */
static int exp_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Mul", dy, node->outputs[0]));
  return ERR_OK;
}

static const struct op_case exp_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[]"},
    {.inputs = "f32[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Exp = {
    .name = "Exp",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .backward = exp_backward,
    .ref = exp_ref,
    .cases = exp_cases,
};

/* Neg: elementwise negation (ONNX 6..13). Integers wrap. */
#include "model/ops/shared/elementwise.h"

UNARY_REF(neg_ref_f32, -x)
INTEGER_UNARY_REF(neg_ref_integer, 0 - x)
TYPE_DISPATCH(neg_ref)

/* dx = -dy */
static int neg_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  autodiff_add(ad, node, 0, backward_unary(graph, "Neg", dy));
  return ERR_OK;
}

static const struct op_case neg_cases[] = {
    {.inputs = "f32[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {.inputs = "i32[3]=-5,0,7"},
    {.inputs = "i64[3]=-5,0,7"},
    {0},
};

const struct op_def op_Neg = {
    .name = "Neg",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_number,
    .backward = neg_backward,
    .ref = neg_ref,
    .cases = neg_cases,
};

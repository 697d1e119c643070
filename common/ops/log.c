/* Log: elementwise natural logarithm (ONNX 6..13). */
#include "common/ops/backward.h"
#include "common/ops/elementwise.h"
#include "common/ops/infer.h"

UNARY_REF(log_ref, (float)log(x))

/* dx = dy / x */
static int log_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Div", dy, node->inputs[0]));
  return ERR_OK;
}

static const struct op_case log_cases[] = {
    {.inputs = "f32[2,3]=0.3,0.5,1,2,3,0.8"},
    {.inputs = "f32[]=1.5"},
    {.inputs = "f32{0.3..3}[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Log = {
    .name = "Log",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = infer_same_f32,
    .backward = log_backward,
    .ref = log_ref,
    .cases = log_cases,
};

/* Identity (ONNX 1..19, tensors only). */
#include "model/ops/shared/alias.h"
#include "model/ops/shared/infer.h"

static int identity_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  (void)graph, (void)err;
  autodiff_add(ad, node, 0, autodiff_grad(ad, node, 0));
  return ERR_OK;
}

static const struct op_case identity_cases[] = {
    {.inputs = "f32[2,3]"},
    {.inputs = "i64{5}[4]"},
    {.inputs = "f32[s]", .draw = "s=|1|7|2,5|3,1,4"},
    {0},
};

const struct op_def op_Identity = {
    .name = "Identity",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_ALIAS,
    .infer = infer_same,
    .backward = identity_backward,
    .ref = alias_ref,
    .cases = identity_cases,
};

/* Identity (ONNX 1..19, tensors only). */
#include <string.h>

#include "common/ops/infer.h"

static int identity_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  (void)graph, (void)err;
  autodiff_add(ad, node, 0, autodiff_grad(ad, node, 0));
  return ERR_OK;
}

static int identity_ref(const struct op_call *call, struct err *err) {
  const struct tensor *in = &call->in[0];
  (void)err;
  if (in->data != call->out[0].data)
    memcpy(call->out[0].data, in->data, (size_t)shape_elems(&in->shape) * dtype_size(in->dtype));
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
    .ref = identity_ref,
    .cases = identity_cases,
};

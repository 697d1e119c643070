/* Flatten: the dimensions before an axis become one, and those behind it another (ONNX 1..13). */
#include <string.h>

#include "common/ops/backward.h"
#include "common/ops/infer.h"

static int flatten_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  struct shape y, outer = x.shape, inner = {0};
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", 1), x.shape.rank, true, &axis, err))
    return err->code;
  outer.rank = axis;
  for (int d = axis; d < x.shape.rank; d++)
    inner.dim[inner.rank++] = x.shape.dim[d];
  y = (struct shape){.rank = 2, .dim = {shape_elems(&outer), shape_elems(&inner)}};
  return infer_output(graph, node, 0, x.dtype, &y, err);
}

static int flatten_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  (void)err;
  autodiff_add(ad, node, 0, backward_reshape(graph, autodiff_grad(ad, node, 0), &x));
  return ERR_OK;
}

static int flatten_ref(const struct op_call *call, struct err *err) {
  const struct tensor *in = &call->in[0];
  (void)err;
  if (in->data != call->out[0].data)
    memcpy(call->out[0].data, in->data, (size_t)shape_elems(&in->shape) * dtype_size(in->dtype));
  return ERR_OK;
}

static const struct op_case flatten_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=0"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=-1"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=3"},
    {.inputs = "f32[a,b,c]", .attrs = "axis=x", .draw = "a=1..3 b=1..3 c=1..4 x=-3..3"},
    {0},
};

const struct op_def op_Flatten = {
    .name = "Flatten",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_ALIAS,
    .infer = flatten_infer,
    .backward = flatten_backward,
    .ref = flatten_ref,
    .cases = flatten_cases,
};

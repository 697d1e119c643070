/* Flatten: the dimensions before an axis become one, and those behind it another (ONNX 1..13). */
#include "model/ops/shared/alias.h"
#include "model/ops/shared/infer.h"

static int flatten_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0);
  struct shape y, outer = x.shape, inner = {0};
  int axis;
  if (infer_axis_or_end(node, node_attr_int(node, "axis", 1), x.shape.rank, &axis, err))
    return err->code;
  outer.rank = axis;
  for (int d = axis; d < x.shape.rank; d++)
    inner.dim[inner.rank++] = x.shape.dim[d];
  y = (struct shape){.rank = 2, .dim = {shape_elems(&outer), shape_elems(&inner)}};
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
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
    .backward = alias_backward,
    .ref = alias_ref,
    .cases = flatten_cases,
};

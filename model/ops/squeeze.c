/* Squeeze: dimensions of 1 left out (ONNX 1..21; the axes are an input since 13): those named, or all. */
#include "model/ops/shared/alias.h"
#include "model/ops/shared/infer.h"

static int squeeze_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape y = {0};
  struct axis_set axes = {.rank = x.shape.rank};
  char text[128];
  if (infer_axes(graph, node, (struct ints_source){1, "axes"}, &axes, err))
    return err->code;
  for (int d = 0; d < x.shape.rank; d++) {
    if (axes.has[d] && x.shape.dim[d] != 1)
      return node_error(node, err, ERR_INVALID, "axis %d of shape %s is not 1", d,
                        shape_text(&x.shape, text, sizeof text));
    if (axes.n > 0 ? !axes.has[d] : x.shape.dim[d] != 1)
      y.dim[y.rank++] = x.shape.dim[d];
  }
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static const struct op_case squeeze_cases[] = {
    {.inputs = "f32[1,n,1,m]", .draw = "n=1..3 m=1..3"},
    {.inputs = "f32[1,n,1,m] i64[2]==0,-2", .draw = "n=1..3 m=1..3"},
    {.inputs = "f32[1,3,1]", .attrs = "axes=2,", .opset = 11},
    {.inputs = "i64{9}[1] i64[1]==0"},
    {0},
};

const struct op_def op_Squeeze = {
    .name = "Squeeze",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_ALIAS,
    .infer = squeeze_infer,
    .backward = alias_backward,
    .ref = alias_ref,
    .cases = squeeze_cases,
};

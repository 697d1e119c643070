/* Unsqueeze: dimensions of 1 put in, at axes of the result (ONNX 1..21; the axes are an input since 13). */
#include "model/ops/shared/alias.h"
#include "model/ops/shared/infer.h"

static int unsqueeze_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  int64_t given[RANK_MAX] = {0};
  struct axis_set axes;
  struct shape y = {0};
  int n;
  if (!node_input(graph, node, 1) && !node_attr(node, "axes"))
    return node_error(node, err, ERR_INVALID,
                      "it is not told where: input 1, or before opset 13 attribute 'axes'");
  if (infer_few_ints(graph, node, (struct ints_source){1, "axes"}, (struct ints_room){given, RANK_MAX, &n},
                     err))
    return err->code;
  if (x.shape.rank + n > RANK_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "a result of %d dimensions; at most %d are supported",
                      x.shape.rank + n, RANK_MAX);
  axes.rank = x.shape.rank + n;
  if (infer_axes(graph, node, (struct ints_source){1, "axes"}, &axes, err))
    return err->code;
  for (int from = 0; y.rank < axes.rank; y.rank++)
    y.dim[y.rank] = axes.has[y.rank] ? 1 : x.shape.dim[from++];
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static const struct op_case unsqueeze_cases[] = {
    {.inputs = "f32[n,m] i64[2]==a,-1", .draw = "n=1..3 m=1..3 a=0..2"},
    {.inputs = "f32[2,3]", .attrs = "axes=0,3", .opset = 11},
    {.inputs = "i64{9}[] i64[1]==0"},
    {.inputs = "f32[3] i64[0]=="},
    {0},
};

const struct op_def op_Unsqueeze = {
    .name = "Unsqueeze",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_ALIAS,
    .infer = unsqueeze_infer,
    .backward = alias_backward,
    .ref = alias_ref,
    .cases = unsqueeze_cases,
};

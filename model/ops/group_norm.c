/* GroupNormalization (ONNX 18 and 21): over the channels of a group and their spatial elements. Scale and
   bias have an element a group in opset 18, an element a channel since 21. */
#include "model/ops/row_norm.h"
#include "model/ops/shared/infer.h"

int row_norm_of_group(struct row_norm *norm, const struct graph *graph, const struct node *node,
                      struct err *err) {
  const struct shape x = node_input(graph, node, 0)->shape;
  int64_t groups = node_attr_int(node, "num_groups", 0), plane = 1, vector;
  char text[128];
  if (x.rank < 2 || groups < 1 || x.dim[1] % groups != 0)
    return node_error(node, err, ERR_INVALID, "the channels of an input of shape %s are not %lld groups",
                      shape_text(&x, text, sizeof text), (long long)groups);
  vector = graph->opset < 21 ? groups : x.dim[1];
  if (infer_check_vector(graph, node, 1, vector, err) || infer_check_vector(graph, node, 2, vector, err))
    return err->code;
  for (int d = 2; d < x.rank; d++)
    plane *= x.dim[d];
  *norm = (struct row_norm){.rows = x.dim[0] * groups, .n = x.dim[1] / groups * plane, .has_bias = true};
  norm->x = (struct shape){.rank = 3, .dim = {x.dim[0], vector, x.dim[1] / vector * plane}};
  norm->scale = norm->bias = (struct shape){.rank = 2, .dim = {vector, 1}};
  return ERR_OK;
}

static int group_norm_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct row_norm norm;
  if (node_attr_int(node, "stash_type", 1) != 1)
    return node_error(node, err, ERR_UNSUPPORTED, "only stash_type 1 (f32) is supported");
  if (infer_check_f32(graph, node, err) || row_norm_of_group(&norm, graph, node, err))
    return err->code;
  return row_norm_infer(graph, node, &norm, err);
}

static int group_norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  struct row_norm norm;
  if (row_norm_of_group(&norm, graph, node, err))
    return err->code;
  return row_norm_backward(ad, graph, node, &norm, err);
}

static int group_norm_ref(const struct op_call *call, struct err *err) {
  struct row_norm norm;
  if (row_norm_of_group(&norm, call->graph, call->node, err))
    return err->code;
  return row_norm_ref(call, &norm, err);
}

static const struct op_case group_norm_cases[] = {
    {.inputs = "f32[2,4,3,2] f32[2] f32[2]", .attrs = "num_groups=2", .opset = 18},
    {.inputs = "f32[2,4,3,2] f32[4] f32[4]", .attrs = "num_groups=2", .opset = 21},
    {.inputs = "f32[3,6] f32[6] f32[6]", .attrs = "num_groups=2 epsilon=0.1f", .opset = 21},
    {.inputs = "f32[1,4,9] f32[4] f32[4]", .attrs = "num_groups=1", .opset = 21},
    {.inputs = "f32[2,3,5] f32[3] f32[3]", .attrs = "num_groups=3 stash_type=1", .opset = 21},
    {.inputs = "f32[n,c*g,w] f32[c*g] f32[c*g]",
     .attrs = "num_groups=g epsilon=0.1f",
     .draw = "n=1..3 c=1..3 g=1..3 w=3..6",
     .opset = 21},
    {.inputs = "f32[n,c*g,w] f32[g] f32[g]",
     .attrs = "num_groups=g epsilon=0.1f",
     .draw = "n=1..3 c=1..3 g=1..3 w=3..6",
     .opset = 18},
    {0},
};

const struct op_def op_GroupNormalization = {
    .name = "GroupNormalization",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .flags = OP_INPLACE,
    .infer = group_norm_infer,
    .backward = group_norm_backward,
    .ref = group_norm_ref,
    .cases = group_norm_cases,
};

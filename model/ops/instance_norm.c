/* InstanceNormalization (ONNX 6): over the spatial elements of each channel of each sample. */
#include "model/ops/row_norm.h"
#include "model/ops/shared/infer.h"

int row_norm_of_instance(struct row_norm *norm, const struct graph *graph, const struct node *node,
                         struct err *err) {
  const struct shape x = node_input(graph, node, 0)->shape;
  char text[128];
  if (x.rank < 3)
    return node_error(node, err, ERR_INVALID, "input of shape %s has no spatial dimensions",
                      shape_text(&x, text, sizeof text));
  if (infer_check_vector(graph, node, 1, x.dim[1], err) || infer_check_vector(graph, node, 2, x.dim[1], err))
    return err->code;
  *norm = (struct row_norm){.rows = x.dim[0] * x.dim[1], .n = 1, .has_bias = true};
  for (int d = 2; d < x.rank; d++)
    norm->n *= x.dim[d];
  norm->x = (struct shape){.rank = 3, .dim = {x.dim[0], x.dim[1], norm->n}};
  norm->scale = norm->bias = (struct shape){.rank = 2, .dim = {x.dim[1], 1}};
  return ERR_OK;
}

static int instance_norm_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct row_norm norm;
  if (infer_check_f32(graph, node, err) || row_norm_of_instance(&norm, graph, node, err))
    return err->code;
  return row_norm_infer(graph, node, &norm, err);
}

static int instance_norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                  struct err *err) {
  struct row_norm norm;
  if (row_norm_of_instance(&norm, graph, node, err))
    return err->code;
  return row_norm_backward(ad, graph, node, &norm, err);
}

static int instance_norm_ref(const struct op_call *call, struct err *err) {
  struct row_norm norm;
  if (row_norm_of_instance(&norm, call->graph, call->node, err))
    return err->code;
  return row_norm_ref(call, &norm, err);
}

static const struct op_case instance_norm_cases[] = {
    {.inputs = "f32[2,3,4,5] f32[3] f32[3]"},
    {.inputs = "f32[2,1,7] f32[1] f32[1]", .attrs = "epsilon=0.1f"},
    {.inputs = "f32[1,2,2,3,2] f32[2] f32[2]"},
    {.inputs = "f32[1,5,35] f32[5] f32[5]"},
    {.inputs = "f32[1,2,4133] f32[2] f32[2]", .is_not_smooth = true},
    {.inputs = "f32[n,c,h,w] f32[c] f32[c]", .attrs = "epsilon=0.1f", .draw = "n=1..3 c=1..4 h=1..4 w=3..5"},
    {0},
};

const struct op_def op_InstanceNormalization = {
    .name = "InstanceNormalization",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE,
    .infer = instance_norm_infer,
    .backward = instance_norm_backward,
    .ref = instance_norm_ref,
    .cases = instance_norm_cases,
};

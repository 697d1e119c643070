/* LayerNormalization (ONNX 17): over all dimensions from `axis` on, in f32. */
#include "model/ops/row_norm.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"

/* Input i must broadcast to x. */
static int check_vector(const struct graph *graph, const struct node *node, int i, const struct shape *x,
                        struct err *err) {
  const struct value *value = node_input(graph, node, i);
  struct shape common;
  char own[128], all[128];
  if (broadcast_shapes(x, &value->shape, &common) && shape_is_same(&common, x))
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "input %d ('%s') of shape %s does not broadcast to %s", i,
                    value->name, shape_text(&value->shape, own, sizeof own), shape_text(x, all, sizeof all));
}

int row_norm_of_layer(struct row_norm *norm, const struct graph *graph, const struct node *node,
                      struct err *err) {
  int axis;
  *norm = (struct row_norm){.rows = 1, .n = 1, .x = node_input(graph, node, 0)->shape};
  norm->has_bias = node_input(graph, node, 2) != NULL;
  norm->scale = node_input(graph, node, 1)->shape;
  if (norm->has_bias)
    norm->bias = node_input(graph, node, 2)->shape;
  if (infer_axis(node, node_attr_int(node, "axis", -1), norm->x.rank, &axis, err) ||
      check_vector(graph, node, 1, &norm->x, err) ||
      (norm->has_bias && check_vector(graph, node, 2, &norm->x, err)))
    return err->code;
  for (int d = 0; d < norm->x.rank; d++)
    *(d < axis ? &norm->rows : &norm->n) *= norm->x.dim[d];
  return ERR_OK;
}

static int layer_norm_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct row_norm norm;
  struct shape rows;
  int axis;
  if (node_attr_int(node, "stash_type", 1) != 1)
    return node_error(node, err, ERR_UNSUPPORTED, "only stash_type 1 (f32) is supported");
  if (infer_check_f32(graph, node, err) || row_norm_of_layer(&norm, graph, node, err))
    return err->code;
  rows = norm.x;
  infer_axis(node, node_attr_int(node, "axis", -1), rows.rank, &axis, err);
  for (int d = axis; d < rows.rank; d++)
    rows.dim[d] = 1;
  if (infer_same(graph, node, err) || infer_f32(graph, node, 1, &rows, err))
    return err->code;
  return infer_f32(graph, node, 2, &rows, err);
}

static int layer_norm_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  struct row_norm norm;
  if (row_norm_of_layer(&norm, graph, node, err))
    return err->code;
  return row_norm_backward(ad, graph, node, &norm, err);
}

static int layer_norm_ref(const struct op_call *call, struct err *err) {
  struct row_norm norm;
  if (row_norm_of_layer(&norm, call->graph, call->node, err))
    return err->code;
  return row_norm_ref(call, &norm, err);
}

static const struct op_case layer_norm_cases[] = {
    {.inputs = "f32[3,8] f32[8] f32[8]"},
    {.inputs = "f32[2,3,4] f32[4]", .attrs = "epsilon=0.1f", .outputs = 3},
    {.inputs = "f32[2,3,4] f32[3,4] f32[3,4]", .attrs = "axis=1", .outputs = 2},
    {.inputs = "f32[2,3,4] f32[2,3,4] f32[2,3,4]", .attrs = "axis=-3"},
    {.inputs = "f32[2,3,4] f32[3,4] f32[3,4]"},
    {.inputs = "f32[2,3,4] f32[4] f32[3,1]", .attrs = "axis=1"},
    {.inputs = "f32[2,3,4] f32[] f32[1]", .attrs = "axis=0"},
    {.inputs = "f32[131,19] f32[19] f32[19]", .is_not_smooth = true},
    {.inputs = "f32[2,4133] f32[4133] f32[4133]", .is_not_smooth = true},
    {.inputs = "f32[2,8400] f32[8400] f32[8400]", .is_not_smooth = true},
    {.inputs = "f32[3201,8] f32[8] f32[8]", .is_not_smooth = true},
    {.inputs = "f32[37,264] f32[264] f32[264]", .outputs = 3, .is_not_smooth = true},
    {.inputs = "f32[2,19,768] f32[768]", .is_not_smooth = true},
    {.inputs = "f32[19,1000] f32[1000] f32[1000]", .is_not_smooth = true},
    {.inputs = "f32[3,1032] f32[1032] f32[1032]", .is_not_smooth = true},
    {.inputs = "f32[450,520] f32[520] f32[520]", .is_not_smooth = true},
    {.inputs = "f32[281,2056] f32[2056] f32[2056]", .is_not_smooth = true},
    {.inputs = "f32[2,4104] f32[4104] f32[4104]", .is_not_smooth = true},
    {.inputs = "f32[2,8192] f32[8192]", .is_not_smooth = true},
    {.inputs = "f32[n,t,d] f32[d] b",
     .attrs = "epsilon=0.1f",
     .draw = "n=1..3 t=1..4 d=3..9 b=-|f32[d]|f32[]"},
    {.inputs = "f32[n,t,d] f32[t,d] f32[t,d]",
     .attrs = "axis=a epsilon=0.1f",
     .draw = "n=1..3 t=1..4 d=3..9 a=1|-1"},
    {0},
};

const struct op_def op_LayerNormalization = {
    .name = "LayerNormalization",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 3,
    .min_opset = 17,
    .flags = OP_INPLACE,
    .infer = layer_norm_infer,
    .backward = layer_norm_backward,
    .ref = layer_norm_ref,
    .cases = layer_norm_cases,
};

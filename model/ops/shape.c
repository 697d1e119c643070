/* Shape: the dimensions of a tensor from `start` to `end` (ONNX 1..21; the bounds since 15). */
#include "model/ops/shared/infer.h"

static int64_t axis_clamped(int64_t at, int rank) {
  if (at < 0)
    at += rank;
  return at < 0 ? 0 : at > rank ? rank : at;
}

static int64_t first_dim(const struct node *node, int rank) {
  return axis_clamped(node_attr_int(node, "start", 0), rank);
}

static int shape_infer(struct graph *graph, const struct node *node, struct err *err) {
  int rank = node_input(graph, node, 0)->shape.rank;
  int64_t n = axis_clamped(node_attr_int(node, "end", rank), rank) - first_dim(node, rank);
  struct shape shape = {.rank = 1, .dim = {n > 0 ? n : 0}};
  return infer_output(graph, node, 0, &(struct tensor){.dtype = DTYPE_I64, .shape = shape}, err);
}

static int shape_ref(const struct op_call *call, struct err *err) {
  const struct shape *x = &call->in[0].shape;
  int64_t *out = call->out[0].data, start = first_dim(call->node, x->rank);
  (void)err;
  for (int64_t d = 0; d < call->out[0].shape.dim[0]; d++)
    out[d] = x->dim[start + d];
  return ERR_OK;
}

static const struct op_case shape_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4]", .attrs = "start=1 end=-1"},
    {.inputs = "f32[2,3,4]", .attrs = "start=2 end=1"},
    {.inputs = "bool{2}[5]"},
    {.inputs = "f32[]"},
    {.inputs = "f32[n,m]", .attrs = "start=s end=e", .draw = "n=1..4 m=1..4 s=-3..3 e=-3..3"},
    {0},
};

const struct op_def op_Shape = {
    .name = "Shape",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_SHAPES,
    .infer = shape_infer,
    .ref = shape_ref,
    .cases = shape_cases,
};

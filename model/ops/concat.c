/* Concat: tensors one behind the other along an axis (ONNX 4..13). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int concat_axis(const struct node *node, int rank, int *axis, struct err *err) {
  const struct attr *attr = node_attr(node, "axis");
  if (!attr || attr->type != ATTR_INT)
    return node_error(node, err, ERR_INVALID, "attribute 'axis' is missing");
  return infer_axis(node, attr->i, rank, axis, err);
}

static int concat_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value first = *node_input(graph, node, 0);
  struct shape out = first.shape;
  char left[128], right[128];
  int axis;
  if (concat_axis(node, first.shape.rank, &axis, err))
    return err->code;
  for (int i = 1; i < node->n_inputs; i++) {
    const struct value *next = node_input(graph, node, i);
    struct shape fitting = out;
    if (!next)
      return node_error(node, err, ERR_INVALID, "input %d is absent", i);
    if (next->shape.rank == out.rank)
      fitting.dim[axis] = next->shape.dim[axis];
    if (next->dtype != first.dtype || !shape_is_same(&next->shape, &fitting))
      return node_error(node, err, ERR_INVALID,
                        "input %d is %s%s and input 0 %s%s, to be joined along axis %d", i,
                        dtype_name(next->dtype), shape_text(&next->shape, left, sizeof left),
                        dtype_name(first.dtype), shape_text(&first.shape, right, sizeof right), axis);
    if (__builtin_add_overflow(out.dim[axis], next->shape.dim[axis], &out.dim[axis]))
      return node_error(node, err, ERR_INVALID, "the result would be larger than any tensor may be");
  }
  return infer_output(graph, node, 0, &(struct tensor){.dtype = first.dtype, .shape = out}, err);
}

/* The gradient is split the way the tensors were joined. */
static int concat_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  int64_t sizes[OP_INPUTS_MAX];
  int axis, dy = autodiff_grad(ad, node, 0);
  struct attr attrs[2];
  struct node *split;
  if (concat_axis(node, node_input(graph, node, 0)->shape.rank, &axis, err))
    return err->code;
  for (int i = 0; i < node->n_inputs; i++)
    sizes[i] = node_input(graph, node, i)->shape.dim[axis];
  attrs[0] = attr_of_int("axis", axis);
  attrs[1] = attr_of_ints("split", sizes, node->n_inputs);
  split = graph_add_node(graph, "Split", VALUES(dy), node->n_inputs, (struct attr_list){attrs, 2});
  for (int i = 0; i < node->n_inputs; i++)
    autodiff_add(ad, node, i, split->outputs[i]);
  return ERR_OK;
}

static int concat_ref(const struct op_call *call, struct err *err) {
  const struct tensor *out = &call->out[0];
  size_t element = dtype_size(out->dtype);
  char *to = out->data;
  int64_t outer = 1, inner;
  int axis;
  if (concat_axis(call->node, out->shape.rank, &axis, err))
    return err->code;
  inner = shape_stride(&out->shape, axis);
  for (int d = 0; d < axis; d++)
    outer *= out->shape.dim[d];
  for (int i = 0; i < call->node->n_inputs; i++) {
    int64_t run = call->in[i].shape.dim[axis] * inner;
    struct strided walk = {0};
    strided_dim(&walk, outer, run, out->shape.dim[axis] * inner);
    strided_dim(&walk, run, 1, 1);
    strided_copy(&walk, element, call->in[i].data, to);
    to += (size_t)run * element;
  }
  return ERR_OK;
}

static const struct op_case concat_cases[] = {
    {.inputs = "f32[2,3] f32[2,1] f32[2,2]", .attrs = "axis=1"},
    {.inputs = "f32[2,3] f32[1,3]", .attrs = "axis=-2"},
    {.inputs = "i64{9}[2] i64{9}[0] i64{9}[3]", .attrs = "axis=0"},
    {.inputs = "bool{2}[1,2,2] bool{2}[1,1,2]", .attrs = "axis=1"},
    {.inputs = "f32[2,16,3,3] f32[2,32,3,3] f32[2,16,3,3]", .attrs = "axis=1"},
    {.inputs = "f32[2,3]", .attrs = "axis=0"},
    {.inputs = "f32[n,a,m] f32[n,b,m] f32[n,c,m]",
     .attrs = "axis=1",
     .draw = "n=1..3 a=1..4 b=1..4 c=1..4 m=1..3"},
    {0},
};

const struct op_def op_Concat = {
    .name = "Concat",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 4,
    .infer = concat_infer,
    .backward = concat_backward,
    .ref = concat_ref,
    .cases = concat_cases,
};

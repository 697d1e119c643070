/* Split: a tensor cut into parts along an axis (ONNX 2..18): of equal sizes, or those of the attribute or
   input `split`. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

struct split {
  int axis, n;
  int64_t sizes[OP_OUTPUTS_MAX];
};

/* Since opset 18 the last part may be smaller; before, all are of one size. */
static int equal_sizes(const struct graph *graph, const struct node *node, int64_t dim, struct split *split,
                       struct err *err) {
  int64_t size;
  split->n = node->n_outputs;
  if (node_attr_int(node, "num_outputs", split->n) != split->n)
    return node_error(node, err, ERR_INVALID, "has %d outputs, and num_outputs is %lld", split->n,
                      (long long)node_attr_int(node, "num_outputs", 0));
  size = dim / split->n + (dim % split->n != 0);
  if (dim % split->n != 0 && graph->opset < 18)
    return node_error(node, err, ERR_INVALID, "a dimension of %lld does not split into %d equal parts",
                      (long long)dim, split->n);
  for (int i = 0; i < split->n; i++, dim -= size)
    split->sizes[i] = dim < size ? (dim > 0 ? dim : 0) : size;
  return ERR_OK;
}

static int split_read(const struct graph *graph, const struct node *node, const struct shape *x,
                      struct split *split, struct err *err) {
  int64_t left;
  if (infer_axis(node, node_attr_int(node, "axis", 0), x->rank, &split->axis, err) ||
      infer_few_ints(graph, node, (struct ints_source){1, "split"},
                     (struct ints_room){split->sizes, OP_OUTPUTS_MAX, &split->n}, err))
    return err->code;
  left = x->dim[split->axis];
  if (!node_input(graph, node, 1) && !node_attr(node, "split"))
    return equal_sizes(graph, node, left, split, err);
  if (split->n != node->n_outputs)
    return node_error(node, err, ERR_INVALID, "has %d outputs and %d sizes", node->n_outputs, split->n);
  for (int i = 0; i < split->n; i++) {
    if (split->sizes[i] < 0 || split->sizes[i] > left)
      return node_error(node, err, ERR_INVALID, "part %d of %lld elements does not fit a dimension of %lld",
                        i, (long long)split->sizes[i], (long long)x->dim[split->axis]);
    left -= split->sizes[i];
  }
  if (left > 0)
    return node_error(node, err, ERR_INVALID, "the parts leave %lld of %lld elements over", (long long)left,
                      (long long)x->dim[split->axis]);
  return ERR_OK;
}

static int split_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape part = x.shape;
  struct split split;
  if (split_read(graph, node, &x.shape, &split, err))
    return err->code;
  for (int i = 0; i < split.n; i++) {
    part.dim[split.axis] = split.sizes[i];
    if (infer_output(graph, node, i, &(struct tensor){.dtype = x.dtype, .shape = part}, err))
      return err->code;
  }
  return ERR_OK;
}

/* The parts' gradients joined, with zeros for those that nothing depends on. */
static int split_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  struct shape part = node_input(graph, node, 0)->shape;
  int grads[OP_INPUTS_MAX];
  struct split split;
  struct attr attr;
  if (split_read(graph, node, &part, &split, err))
    return err->code;
  for (int i = 0; i < split.n; i++) {
    grads[i] = autodiff_grad(ad, node, i);
    part.dim[split.axis] = split.sizes[i];
    if (grads[i] < 0)
      grads[i] = backward_broadcast_to(graph, graph_add_constant_f32(graph, 0.0f), &part);
  }
  attr = attr_of_int("axis", split.axis);
  autodiff_add(ad, node, 0,
               backward_node(graph, "Concat", (struct value_list){grads, split.n}, ATTR_LIST(attr)));
  return ERR_OK;
}

static int split_ref(const struct op_call *call, struct err *err) {
  const struct tensor *in = &call->in[0];
  size_t element = dtype_size(in->dtype);
  const char *from = in->data;
  int64_t outer = 1, inner;
  struct split split;
  if (split_read(call->graph, call->node, &in->shape, &split, err))
    return err->code;
  inner = shape_stride(&in->shape, split.axis);
  for (int d = 0; d < split.axis; d++)
    outer *= in->shape.dim[d];
  for (int i = 0; i < split.n; i++) {
    int64_t run = split.sizes[i] * inner;
    struct strided walk = {0};
    strided_dim(&walk, outer, in->shape.dim[split.axis] * inner, run);
    strided_dim(&walk, run, 1, 1);
    if (call->out[i].data)
      strided_copy(&walk, element, from, call->out[i].data);
    from += (size_t)run * element;
  }
  return ERR_OK;
}

static const struct op_case split_cases[] = {
    {.inputs = "f32[2,6]", .attrs = "axis=1", .outputs = 3},
    {.inputs = "f32[2,6] i64[3]==1,2,3", .attrs = "axis=-1", .outputs = 3},
    {.inputs = "f32[5,2]", .attrs = "split=4,1", .outputs = 2, .opset = 11},
    {.inputs = "f32[7,2]", .attrs = "num_outputs=3", .outputs = 3, .opset = 18},
    {.inputs = "i64{9}[4] i64[3]==1,0,3", .outputs = 3},
    {.inputs = "f32[2,48,3,3] i64[2]==32,16", .attrs = "axis=1", .outputs = 2},
    {.inputs = "f32[n,a+b,m] i64[2]==a,b",
     .attrs = "axis=1",
     .outputs = 2,
     .draw = "n=1..3 a=1..4 b=1..4 m=1..3"},
    {0},
};

const struct op_def op_Split = {
    .name = "Split",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = OP_OUTPUTS_MAX,
    .min_opset = 2,
    .infer = split_infer,
    .backward = split_backward,
    .ref = split_ref,
    .cases = split_cases,
};

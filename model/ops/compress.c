/* Compress: the entries of an axis, or without one of the flat tensor, whose condition is true (ONNX 9..11).
   The condition must be known, for the result's shape depends on it. */
#include "model/ops/compress.h"

#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

int compress_read(const struct graph *graph, const struct node *node, struct compress *compress,
                  struct err *err) {
  const struct shape *x = &node_input(graph, node, 0)->shape;
  const struct value *condition = node_input(graph, node, 1);
  *compress = (struct compress){.axis = -1, .outer = 1, .n = shape_elems(x), .inner = 1};
  if (node_attr(node, "axis")) {
    if (infer_axis(node, node_attr_int(node, "axis", 0), x->rank, &compress->axis, err))
      return err->code;
    compress->n = x->dim[compress->axis];
    compress->inner = shape_stride(x, compress->axis);
    for (int d = 0; d < compress->axis; d++)
      compress->outer *= x->dim[d];
  }
  if (infer_check_known(graph, node, 1, err) || infer_check_rank(graph, node, 1, 1, err))
    return err->code;
  compress->length = condition->shape.dim[0];
  compress->condition = condition->data;
  if (condition->dtype != DTYPE_BOOL || compress->length > compress->n)
    return node_error(node, err, ERR_INVALID, "the condition ('%s') must be at most %lld bools",
                      condition->name, (long long)compress->n);
  for (int64_t i = 0; i < compress->length; i++)
    compress->count += compress->condition[i] != 0;
  return ERR_OK;
}

static int compress_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct compress compress;
  struct shape y = x.shape;
  if (compress_read(graph, node, &compress, err))
    return err->code;
  if (compress.axis >= 0)
    y.dim[compress.axis] = compress.count;
  else
    y = (struct shape){.rank = 1, .dim = {compress.count}};
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

/* As that of a Gather of what was picked. */
static int compress_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, seen = x;
  struct compress compress;
  struct attr attrs[2];
  int64_t *picked, n = 0;
  int inputs[2], dx;
  if (compress_read(graph, node, &compress, err))
    return err->code;
  if (compress.axis < 0)
    seen = (struct shape){.rank = 1, .dim = {compress.n}};
  picked = arena_new(&graph->arena, (size_t)compress.count * sizeof *picked);
  for (int64_t i = 0; i < compress.length; i++)
    if (compress.condition[i])
      picked[n++] = i;
  attrs[0] = attr_of_shape(&seen);
  attrs[1] = attr_of_int("axis", compress.axis < 0 ? 0 : compress.axis);
  inputs[0] = autodiff_grad(ad, node, 0);
  inputs[1] = graph_add_constant_i64(graph, picked, (int)n);
  dx = backward_node(graph, "GatherGrad", (struct value_list){inputs, 2}, (struct attr_list){attrs, 2});
  autodiff_add(ad, node, 0, backward_reshape(graph, dx, &x));
  return ERR_OK;
}

static int compress_ref(const struct op_call *call, struct err *err) {
  const char *from = call->in[0].data;
  char *to = call->out[0].data;
  struct compress compress;
  size_t row;
  if (compress_read(call->graph, call->node, &compress, err))
    return err->code;
  row = (size_t)compress.inner * dtype_size(call->in[0].dtype);
  for (int64_t o = 0; o < compress.outer; o++, from += (size_t)compress.n * row)
    for (int64_t i = 0; i < compress.length && row > 0; i++)
      if (compress.condition[i]) {
        memcpy(to, from + (size_t)i * row, row);
        to += row;
      }
  return ERR_OK;
}

static const struct op_case compress_cases[] = {
    {.inputs = "f32[3,2] bool[3]==1,0,1", .attrs = "axis=0"},
    {.inputs = "f32[3,2] bool[2]==0,1", .attrs = "axis=-1"},
    {.inputs = "f32[3,2] bool[5]==0,1,0,0,1"},
    {.inputs = "i64{9}[4] bool[3]==1,1,0"},
    {.inputs = "f32[n,3,m] bool[3]==a,1,b", .attrs = "axis=1", .draw = "n=1..3 m=1..3 a=0..1 b=0..1"},
    {0},
};

const struct op_def op_Compress = {
    .name = "Compress",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = compress_infer,
    .backward = compress_backward,
    .ref = compress_ref,
    .cases = compress_cases,
};

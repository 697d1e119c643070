/* Gather: the entries of one axis that indices name (ONNX 1..13), and its gradient, which adds each entry's
   gradient back where the entry came from, in the order of the indices. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/indices.h"
#include "model/ops/shared/infer.h"

/* The data is [outer, n, inner]; the result [outer, count, inner], of the shape `out`. */
struct gather {
  int64_t outer, n, inner, count;
  struct shape out;
};

static int gather_init(struct gather *gather, const struct node *node, const struct shape *data,
                       const struct shape *indices, struct err *err) {
  struct shape *out = &gather->out;
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", 0), data->rank, &axis, err))
    return err->code;
  if (data->rank - 1 + indices->rank > RANK_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "a result of more than %d dimensions", RANK_MAX);
  *gather = (struct gather){.outer = 1, .n = data->dim[axis], .inner = 1, .count = shape_elems(indices)};
  for (int d = 0; d < axis; d++)
    gather->outer *= out->dim[out->rank++] = data->dim[d];
  for (int d = 0; d < indices->rank; d++)
    out->dim[out->rank++] = indices->dim[d];
  for (int d = axis + 1; d < data->rank; d++)
    gather->inner *= out->dim[out->rank++] = data->dim[d];
  return ERR_OK;
}

static int gather_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value data = *node_input(graph, node, 0);
  struct gather gather;
  if (infer_check_indices(graph, node, 1, err) ||
      gather_init(&gather, node, &data.shape, &node_input(graph, node, 1)->shape, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = data.dtype, .shape = gather.out}, err);
}

static int gather_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape;
  struct attr attrs[] = {attr_of_shape(&data), attr_of_int("axis", node_attr_int(node, "axis", 0))};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "GatherGrad", VALUES(autodiff_grad(ad, node, 0), node->inputs[1]),
                             (struct attr_list){attrs, 2}));
  return ERR_OK;
}

static int gather_ref(const struct op_call *call, struct err *err) {
  const struct tensor *data = &call->in[0], *indices = &call->in[1];
  const char *from = data->data;
  char *to = call->out[0].data;
  struct gather gather;
  size_t row;
  if (gather_init(&gather, call->node, &data->shape, &indices->shape, err) ||
      indices_check(call, 1, gather.n, err))
    return err->code;
  row = (size_t)gather.inner * dtype_size(data->dtype);
  for (int64_t o = 0; o < gather.outer && row > 0; o++)
    for (int64_t i = 0; i < gather.count; i++, to += row)
      memcpy(to, from + (size_t)(o * gather.n + index_at(indices, i, gather.n)) * row, row);
  return ERR_OK;
}

static const struct op_case gather_cases[] = {
    {.inputs = "f32[5,3] i64[2,2]=0,4,-1,0"},
    {.inputs = "f32[2,4,3] i32[3]=-4,1,1", .attrs = "axis=1"},
    {.inputs = "f32[2,4] i64[]=2", .attrs = "axis=-1"},
    {.inputs = "i64{9}[4] i64[0]"},
    {.inputs = "bool{2}[2,3] i64[1]=1", .attrs = "axis=1"},
    {.inputs = "f32[n,c] i64{n}[b,t]", .draw = "n=1..6 c=1..5 b=1..3 t=1..4"},
    {.inputs = "f32[o,n,c] i64{n}[t]", .attrs = "axis=1", .draw = "o=1..3 n=1..4 c=1..3 t=1..5"},
    {.inputs = "f32[300,40] i64{300}[2,350]"},
    {.inputs = "f32[2,9,33] i64{9}[600]", .attrs = "axis=1"},
    {0},
};

static const struct op_def gather_grad;
static const struct op_def *const gather_gradients[] = {&gather_grad, NULL};

const struct op_def op_Gather = {
    .name = "Gather",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = gather_infer,
    .backward = gather_backward,
    .ref = gather_ref,
    .cases = gather_cases,
    .gradients = gather_gradients,
};

static int gather_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *dy = node_input(graph, node, 0);
  struct gather gather;
  struct shape data;
  char text[128];
  if (infer_shape_attr(node, &data, err) || infer_check_indices(graph, node, 1, err) ||
      gather_init(&gather, node, &data, &node_input(graph, node, 1)->shape, err))
    return err->code;
  if (dy->dtype != DTYPE_F32 || !shape_is_same(&dy->shape, &gather.out))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to these indices",
                      shape_text(&dy->shape, text, sizeof text));
  return infer_f32(graph, node, 0, &data, err);
}

static int gather_grad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *indices = &call->in[1];
  const struct shape *data = &call->out[0].shape;
  const float *dy = call->in[0].data;
  float *dx = call->out[0].data;
  struct gather gather;
  if (gather_init(&gather, call->node, data, &indices->shape, err) || indices_check(call, 1, gather.n, err))
    return err->code;
  memset(dx, 0, (size_t)shape_elems(data) * sizeof *dx);
  for (int64_t o = 0; o < gather.outer; o++)
    for (int64_t i = 0; i < gather.count; i++, dy += gather.inner) {
      float *row = dx + (o * gather.n + index_at(indices, i, gather.n)) * gather.inner;
      for (int64_t j = 0; j < gather.inner; j++)
        row[j] += dy[j];
    }
  return ERR_OK;
}

/* dy, indices -> dx; axis, shape (of the data) */
static const struct op_def gather_grad = {
    .name = "GatherGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = gather_grad_infer,
    .ref = gather_grad_ref,
};

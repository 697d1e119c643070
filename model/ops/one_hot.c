/* OneHot: `on` where the new axis counts as far as the index, `off` elsewhere (ONNX 9..11). The depth must be
   known. An index outside it gives a row of `off`. */
#include <string.h>

#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

/* Element i of a tensor of any numeric type as a whole number. */
static int64_t whole_at(enum dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case DTYPE_F32: {
    float value = ((const float *)data)[i];
    return value > -9e18f && value < 9e18f ? (int64_t)value : INT64_MAX;
  }
  case DTYPE_I32:
    return ((const int32_t *)data)[i];
  case DTYPE_I64:
    return ((const int64_t *)data)[i];
  default:
    return ((const uint8_t *)data)[i];
  }
}

static int one_hot_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value indices = *node_input(graph, node, 0), *depth = node_input(graph, node, 1);
  const struct value values = *node_input(graph, node, 2);
  struct shape y = {.rank = indices.shape.rank + 1};
  int axis;
  if (infer_check_known(graph, node, 1, err) || infer_check_vector(graph, node, 2, 2, err))
    return err->code;
  if (shape_elems(&depth->shape) != 1 || whole_at(depth->dtype, depth->data, 0) < 0)
    return node_error(node, err, ERR_INVALID, "the depth ('%s') must be a number of at least 0", depth->name);
  if (y.rank > RANK_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "a result of more than %d dimensions", RANK_MAX);
  if (infer_axis(node, node_attr_int(node, "axis", -1), y.rank, &axis, err))
    return err->code;
  for (int d = 0; d < y.rank; d++)
    y.dim[d] = d == axis ? whole_at(depth->dtype, depth->data, 0) : indices.shape.dim[d - (d > axis)];
  return infer_output(graph, node, 0, &(struct tensor){.dtype = values.dtype, .shape = y}, err);
}

static int one_hot_ref(const struct op_call *call, struct err *err) {
  const struct tensor *indices = &call->in[0], *out = &call->out[0];
  size_t element = dtype_size(out->dtype);
  const char *off = call->in[2].data, *on = off + element;
  int64_t elems = shape_elems(&indices->shape), depth, inner;
  struct strided all = {0};
  int axis;
  if (infer_axis(call->node, node_attr_int(call->node, "axis", -1), out->shape.rank, &axis, err))
    return err->code;
  depth = out->shape.dim[axis];
  inner = shape_stride(&out->shape, axis);
  strided_dim(&all, elems * depth, 0, 1);
  strided_copy(&all, element, off, out->data);
  for (int64_t i = 0; i < elems; i++) {
    int64_t index = whole_at(indices->dtype, indices->data, i);
    if (index < -depth || index >= depth)
      continue;
    index += index < 0 ? depth : 0;
    memcpy((char *)out->data + (size_t)((i / inner * depth + index) * inner + i % inner) * element, on,
           element);
  }
  return ERR_OK;
}

static const struct op_case one_hot_cases[] = {
    {.inputs = "i64[4]=0,-1,3,1 i64[]==3 f32[2]=0,1"},
    {.inputs = "i32{3}[2,2] i32[1]==3 i64[2]=5,7", .attrs = "axis=1"},
    {.inputs = "f32[3]=0,1,-2 f32[]==2 bool[2]=0,1", .attrs = "axis=0"},
    {.inputs = "i64{k}[n,m] i64[]==k f32[2]=0,1", .attrs = "axis=a", .draw = "n=1..3 m=1..3 k=1..4 a=-3..2"},
    {0},
};

const struct op_def op_OneHot = {
    .name = "OneHot",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = one_hot_infer,
    .ref = one_hot_ref,
    .cases = one_hot_cases,
};

/* NonZero: the coordinates of all elements that are not zero, one column each (ONNX 9..13). The input must be
   known, for the result's shape depends on it. */
#include "model/ops/shared/infer.h"

static bool is_non_zero(enum dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case DTYPE_F32:
    return ((const float *)data)[i] != 0.0f;
  case DTYPE_I32:
    return ((const int32_t *)data)[i] != 0;
  case DTYPE_I64:
    return ((const int64_t *)data)[i] != 0;
  default:
    return ((const uint8_t *)data)[i] != 0;
  }
}

static int non_zero_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  int64_t elems = shape_elems(&x.shape), count = 0;
  if (infer_check_known(graph, node, 0, err))
    return err->code;
  for (int64_t i = 0; i < elems; i++)
    count += is_non_zero(x.dtype, x.data, i);
  return infer_output(
      graph, node, 0,
      &(struct tensor){.dtype = DTYPE_I64, .shape = (struct shape){.rank = 2, .dim = {x.shape.rank, count}}},
      err);
}

static int non_zero_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  int64_t elems = shape_elems(&x->shape), count = call->out[0].shape.dim[1], column = 0;
  int64_t *out = call->out[0].data;
  (void)err;
  for (int64_t i = 0; i < elems; i++) {
    int64_t rest = i;
    if (!is_non_zero(x->dtype, x->data, i))
      continue;
    for (int d = x->shape.rank - 1; d >= 0; d--) {
      out[d * count + column] = rest % x->shape.dim[d];
      rest /= x->shape.dim[d];
    }
    column++;
  }
  return ERR_OK;
}

static const struct op_case non_zero_cases[] = {
    {.inputs = "f32[2,3]==0,1,0,-2,0,3"},
    {.inputs = "bool[4]==0,0,0,0"},
    {.inputs = "i64[1,3]==4,0,5"},
    {0},
};

const struct op_def op_NonZero = {
    .name = "NonZero",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = non_zero_infer,
    .ref = non_zero_ref,
    .cases = non_zero_cases,
};

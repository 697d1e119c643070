/* ArgMax and ArgMin: where along an axis the greatest or least element is (ONNX 1..13; select_last_index
   since 12). */
#include "model/ops/shared/compare.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int arg_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, y = {0};
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", 0), x.rank, &axis, err))
    return err->code;
  if (x.dim[axis] == 0)
    return node_error(node, err, ERR_INVALID, "axis %d has no elements to choose from", axis);
  for (int d = 0; d < x.rank; d++)
    if (d != axis || node_attr_int(node, "keepdims", 1))
      y.dim[y.rank++] = d == axis ? 1 : x.dim[d];
  return infer_output(graph, node, 0, &(struct tensor){.dtype = DTYPE_I64, .shape = y}, err);
}

/* sign: 1 for the greatest, -1 for the least. */
static int find_extremes(const struct op_call *call, int sign, struct err *err) {
  const struct tensor *x = &call->in[0];
  bool is_last = node_attr_int(call->node, "select_last_index", 0) != 0;
  int64_t *out = call->out[0].data, elems = shape_elems(&call->out[0].shape), n, inner;
  int axis;
  if (infer_axis(call->node, node_attr_int(call->node, "axis", 0), x->shape.rank, &axis, err))
    return err->code;
  n = x->shape.dim[axis];
  inner = shape_stride(&x->shape, axis);
  for (int64_t i = 0; i < elems; i++) {
    int64_t base = i / inner * n * inner + i % inner, best = 0;
    for (int64_t k = 1; k < n; k++) {
      int order = sign * compare_elements(x, base + k * inner, base + best * inner);
      if (order > 0 || (order == 0 && is_last))
        best = k;
    }
    out[i] = best;
  }
  return ERR_OK;
}

static int arg_max_ref(const struct op_call *call, struct err *err) {
  return find_extremes(call, 1, err);
}

static int arg_min_ref(const struct op_call *call, struct err *err) {
  return find_extremes(call, -1, err);
}

static const struct op_case arg_cases[] = {
    {.inputs = "f32[2,4]=1,3,3,2,-1,-1,-4,-4", .attrs = "axis=1"},
    {.inputs = "f32[2,4]=1,3,3,2,-1,-1,-4,-4", .attrs = "axis=-1 select_last_index=1 keepdims=0"},
    {.inputs = "i64{5}[3,2]"},
    {.inputs = "u8{5}[6]", .attrs = "keepdims=0"},
    {.inputs = "f32[2,9001]", .attrs = "axis=1"},
    {.inputs = "f32[n,m,c]", .attrs = "axis=a keepdims=k", .draw = "n=1..3 m=1..4 c=1..3 a=-3..2 k=0..1"},
    {0},
};

const struct op_def op_ArgMax = {
    .name = "ArgMax",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = arg_infer,
    .ref = arg_max_ref,
    .cases = arg_cases,
};

const struct op_def op_ArgMin = {
    .name = "ArgMin",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = arg_infer,
    .ref = arg_min_ref,
    .cases = arg_cases,
};

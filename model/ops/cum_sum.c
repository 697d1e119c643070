/* CumSum: running sums along an axis, from its end with `reverse`, each without its own element with
   `exclusive` (ONNX 11..14). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/indices.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int cum_sum_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 0), *axis = node_input(graph, node, 1);
  if (x->dtype != DTYPE_F32 && x->dtype != DTYPE_I32 && x->dtype != DTYPE_I64)
    return node_error(node, err, ERR_UNSUPPORTED, "sums of %s are not supported", dtype_name(x->dtype));
  if (infer_check_indices(graph, node, 1, err))
    return err->code;
  if (shape_elems(&axis->shape) != 1)
    return node_error(node, err, ERR_INVALID, "the axis ('%s') must be a scalar", axis->name);
  return infer_same(graph, node, err);
}

/* Each element counts in the sums from it on: its gradient is their sum, run backwards. */
static int cum_sum_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1]};
  struct attr attrs[] = {attr_of_int("reverse", !node_attr_int(node, "reverse", 0)),
                         attr_of_int("exclusive", node_attr_int(node, "exclusive", 0))};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "CumSum", (struct value_list){inputs, 2}, (struct attr_list){attrs, 2}));
  return ERR_OK;
}

/* One row of n elements, `stride` apart (negative: from its end), summed in `wide`; integers wrap. */
#define SUM_ROW(type, wide)                                                                                  \
  do {                                                                                                       \
    const type *in = (const type *)x->data + first;                                                          \
    type *out = (type *)call->out[0].data + first;                                                           \
    wide sum = 0;                                                                                            \
    for (int64_t i = 0; i < n; i++) {                                                                        \
      wide before = sum;                                                                                     \
      sum += (wide)in[i * stride];                                                                           \
      out[i * stride] = (type)(is_exclusive ? before : sum);                                                 \
    }                                                                                                        \
  } while (0)

static int cum_sum_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  bool is_reverse = node_attr_int(call->node, "reverse", 0) != 0;
  bool is_exclusive = node_attr_int(call->node, "exclusive", 0) != 0;
  int64_t n, stride, inner, rows;
  int axis;
  if (index_check(call, 1, 0, x->shape.rank, err))
    return err->code;
  axis = (int)index_at(&call->in[1], 0, x->shape.rank);
  n = x->shape.dim[axis];
  inner = shape_stride(&x->shape, axis);
  stride = is_reverse ? -inner : inner;
  rows = n > 0 ? shape_elems(&x->shape) / n : 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t first = r / inner * n * inner + r % inner + (is_reverse ? (n - 1) * inner : 0);
    if (x->dtype == DTYPE_F32)
      SUM_ROW(float, double);
    else if (x->dtype == DTYPE_I32)
      SUM_ROW(int32_t, uint32_t);
    else
      SUM_ROW(int64_t, uint64_t);
  }
  return ERR_OK;
}

static const struct op_case cum_sum_cases[] = {
    {.inputs = "f32[5] i64[]==0"},
    {.inputs = "f32[2,3] i32[1]=-1", .attrs = "exclusive=1"},
    {.inputs = "i64{9}[2,3] i64[]==0", .attrs = "reverse=1"},
    {.inputs = "i32{9}[4] i32[]==0", .attrs = "reverse=1 exclusive=1"},
    {.inputs = "f32[2,700] i64[]==1", .is_not_smooth = true},
    {.inputs = "f32[2,300,3] i64[]==1", .attrs = "reverse=1 exclusive=1", .is_not_smooth = true},
    {.inputs = "i64{9}[3,260] i64[]==1", .attrs = "exclusive=1"},
    {.inputs = "i32{9}[300] i32[]==0", .attrs = "reverse=1"},
    {.inputs = "f32[n,m,c] i64[]=a",
     .attrs = "reverse=r exclusive=e",
     .draw = "n=1..3 m=1..4 c=1..3 a=-3..2 r=0..1 e=0..1"},
    {0},
};

const struct op_def op_CumSum = {
    .name = "CumSum",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .infer = cum_sum_infer,
    .backward = cum_sum_backward,
    .ref = cum_sum_ref,
    .cases = cum_sum_cases,
};

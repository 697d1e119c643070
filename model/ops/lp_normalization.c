/* LpNormalization: divided by the norm of order 1 or 2 along an axis, 0 where that is 0 (ONNX 1), and its
 * gradient.
 */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/lp.h"

/* Element k of row (o, i) is at (o * n + k) * inner + i. */
struct lp_rows {
  int64_t outer, n, inner;
  double p;
};

static int lp_rows_init(struct lp_rows *rows, const struct node *node, const struct shape *x,
                        struct err *err) {
  int axis;
  *rows = (struct lp_rows){1, 1, 1, 2.0};
  if (lp_order(node, &rows->p, err) || infer_axis(node, node_attr_int(node, "axis", -1), x->rank, &axis, err))
    return err->code;
  if (rows->p > 2.0)
    return node_error(node, err, ERR_INVALID, "p is %g; it must be 1 or 2", rows->p);
  for (int d = 0; d < x->rank; d++)
    *(d < axis ? &rows->outer : d == axis ? &rows->n : &rows->inner) *= x->dim[d];
  return ERR_OK;
}

static int lp_normalization_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct lp_rows rows;
  if (lp_rows_init(&rows, node, &node_input(graph, node, 0)->shape, err))
    return err->code;
  return infer_same_f32(graph, node, err);
}

static int lp_normalization_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                     struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "LpNormalizationGrad", (struct value_list){inputs, 2}, node_attrs(node)));
  return ERR_OK;
}

static double row_norm(const struct lp_rows *rows, const float *x) {
  double sum = 0.0;
  for (int64_t k = 0; k < rows->n; k++)
    sum += lp_power(x[k * rows->inner], rows->p);
  return lp_root(sum, rows->p);
}

static int lp_normalization_ref(const struct op_call *call, struct err *err) {
  struct lp_rows rows;
  if (lp_rows_init(&rows, call->node, &call->in[0].shape, err))
    return err->code;
  for (int64_t r = 0; r < rows.outer * rows.inner; r++) {
    int64_t at = r / rows.inner * rows.n * rows.inner + r % rows.inner;
    const float *x = (const float *)call->in[0].data + at;
    float *y = (float *)call->out[0].data + at;
    double norm = row_norm(&rows, x), inverse = norm > 0.0 ? 1.0 / norm : norm;
    for (int64_t k = 0; k < rows.n; k++)
      y[k * rows.inner] = (float)(x[k * rows.inner] * inverse);
  }
  return ERR_OK;
}

static const struct op_case lp_normalization_cases[] = {
    {.inputs = "f32{apart}[2,3,4]"},
    {.inputs = "f32{apart}[2,3,4]", .attrs = "axis=1 p=1"},
    {.inputs = "f32[2,3]=0,0,0,3,0,4", .is_not_smooth = true},
    {.inputs = "f32{apart}[a,b,c]", .attrs = "axis=x p=q", .draw = "a=1..3 b=2..4 c=2..4 x=-3..2 q=1|2"},
    {0},
};

static const struct op_def lp_normalization_grad;
static const struct op_def *const lp_normalization_gradients[] = {&lp_normalization_grad, NULL};

const struct op_def op_LpNormalization = {
    .name = "LpNormalization",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE,
    .infer = lp_normalization_infer,
    .backward = lp_normalization_backward,
    .ref = lp_normalization_ref,
    .cases = lp_normalization_cases,
    .gradients = lp_normalization_gradients,
};

/* With the norm n and its slope s at each element: dx = (dy - s sum(dy x) / n) / n; 0 where n is. */
static int lp_normalization_grad_ref(const struct op_call *call, struct err *err) {
  struct lp_rows rows;
  if (lp_rows_init(&rows, call->node, &call->in[1].shape, err))
    return err->code;
  for (int64_t r = 0; r < rows.outer * rows.inner; r++) {
    int64_t at = r / rows.inner * rows.n * rows.inner + r % rows.inner;
    const float *dy = (const float *)call->in[0].data + at, *x = (const float *)call->in[1].data + at;
    float *dx = (float *)call->out[0].data + at;
    double norm = row_norm(&rows, x), inverse = norm > 0.0 ? 1.0 / norm : norm, dot = 0.0;
    for (int64_t k = 0; k < rows.n * rows.inner; k += rows.inner)
      dot += (double)dy[k] * x[k];
    for (int64_t k = 0; k < rows.n * rows.inner; k += rows.inner)
      dx[k] = (float)((dy[k] - lp_slope(x[k], norm, rows.p) * dot * inverse) * inverse);
  }
  return ERR_OK;
}

/* dy, x -> dx; the attributes of LpNormalization */
static const struct op_def lp_normalization_grad = {
    .name = "LpNormalizationGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = lp_normalization_infer,
    .ref = lp_normalization_grad_ref,
};

/* Softmax (ONNX 1..13) and its gradient, which needs only the output. */
#include "model/ops/softmax.h"

#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

int softmax_rows_init(struct softmax_rows *rows, const struct graph *graph, const struct node *node,
                      const struct shape *shape, struct err *err) {
  bool is_one_axis = graph->opset >= 13;
  int64_t named = node_attr_int(node, "axis", is_one_axis ? -1 : 1);
  int axis;
  *rows = (struct softmax_rows){1, 1, 1};
  if (shape->rank == 0 && !node_attr(node, "axis"))
    return ERR_OK;
  if (is_one_axis ? infer_axis(node, named, shape->rank, &axis, err)
                  : infer_axis_or_end(node, named, shape->rank, &axis, err))
    return err->code;
  for (int d = 0; d < shape->rank; d++)
    if (d < axis)
      rows->outer *= shape->dim[d];
    else if (d == axis || !is_one_axis)
      rows->n *= shape->dim[d];
    else
      rows->inner *= shape->dim[d];
  return ERR_OK;
}

int softmax_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct softmax_rows rows;
  if (softmax_rows_init(&rows, graph, node, &node_input(graph, node, 0)->shape, err))
    return err->code;
  return infer_same_f32(graph, node, err);
}

int softmax_add_grad(struct autodiff *ad, struct graph *graph, const struct node *node, const char *op) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->outputs[0]};
  autodiff_add(ad, node, 0, backward_node(graph, op, (struct value_list){inputs, 2}, node_attrs(node)));
  return ERR_OK;
}

int softmax_each_row(const struct op_call *call, softmax_row_fn *row, struct err *err) {
  const float *a = call->in[0].data, *b = call->in[1].data;
  float *out = call->out[0].data;
  struct softmax_rows rows;
  if (softmax_rows_init(&rows, call->graph, call->node, &call->in[0].shape, err))
    return err->code;
  for (int64_t o = 0; o < rows.outer; o++)
    for (int64_t i = 0; i < rows.inner; i++) {
      int64_t at = o * rows.n * rows.inner + i;
      row(a + at, b ? b + at : NULL, out + at, rows.n, rows.inner);
    }
  return ERR_OK;
}

static int softmax_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  (void)err;
  return softmax_add_grad(ad, graph, node, "SoftmaxGrad");
}

static void softmax_row(const float *x, const float *unused, float *y, int64_t n, int64_t stride) {
  double sum = 0.0;
  float greatest = x[0];
  (void)unused;
  for (int64_t k = 1; k < n; k++)
    greatest = fmaxf(greatest, x[k * stride]);
  for (int64_t k = 0; k < n; k++) {
    y[k * stride] = (float)exp((double)x[k * stride] - greatest);
    sum += y[k * stride];
  }
  for (int64_t k = 0; k < n; k++)
    y[k * stride] = (float)(y[k * stride] / sum);
}

static int softmax_ref(const struct op_call *call, struct err *err) {
  return softmax_each_row(call, softmax_row, err);
}

const struct op_case softmax_cases[] = {
    {.inputs = "f32[3,5]"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=1"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=-3"},
    {.inputs = "f32[2,3,4]", .attrs = "axis=1", .opset = 11},
    {.inputs = "f32[2,3,4]", .attrs = "axis=2", .opset = 11},
    {.inputs = "f32[2,3]=1000,1001,999,-1000,-1000,-1001", .is_not_smooth = true},
    {.inputs = "f32[2,9001]", .is_not_smooth = true},
    {.inputs = "f32[a,b,c]", .attrs = "axis=x", .draw = "a=1..3 b=1..4 c=1..5 x=-3..2"},
    {0},
};

static const struct op_def softmax_grad;
static const struct op_def *const softmax_gradients[] = {&softmax_grad, NULL};

const struct op_def op_Softmax = {
    .name = "Softmax",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE,
    .infer = softmax_infer,
    .backward = softmax_backward,
    .ref = softmax_ref,
    .cases = softmax_cases,
    .gradients = softmax_gradients,
};

/* dx = y (dy - sum(dy y)) */
static void softmax_grad_row(const float *dy, const float *y, float *dx, int64_t n, int64_t stride) {
  double dot = 0.0;
  for (int64_t k = 0; k < n; k++)
    dot += (double)dy[k * stride] * y[k * stride];
  for (int64_t k = 0; k < n; k++)
    dx[k * stride] = (float)(y[k * stride] * (dy[k * stride] - dot));
}

static int softmax_grad_ref(const struct op_call *call, struct err *err) {
  return softmax_each_row(call, softmax_grad_row, err);
}

/* dy, y -> dx; the attributes of Softmax */
static const struct op_def softmax_grad = {
    .name = "SoftmaxGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = softmax_infer,
    .ref = softmax_grad_ref,
};

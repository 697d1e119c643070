/* GlobalAveragePool: the mean over all spatial dimensions (ONNX 1), and its gradient. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/global_pool.h"
#include "model/ops/shared/infer.h"

static int global_average_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                        struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  struct attr attr = attr_of_shape(&x);
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  autodiff_add(ad, node, 0, backward_node(graph, "GlobalAveragePoolGrad", VALUES(dy), ATTR_LIST(attr)));
  return ERR_OK;
}

static int global_average_pool_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  int64_t planes = shape_elems(&call->out[0].shape), elems = global_pool_elems(&call->in[0].shape);
  (void)err;
  for (int64_t p = 0; p < planes; p++) {
    double sum = 0.0;
    for (int64_t i = 0; i < elems; i++)
      sum += *x++;
    y[p] = (float)(sum / (double)elems);
  }
  return ERR_OK;
}

static const struct op_case global_average_pool_cases[] = {
    {.inputs = "f32[2,3,5,4]"},
    {.inputs = "f32[2,16,7,7]"},
    {.inputs = "f32[2,3,5]"},
    {.inputs = "f32[2,3,2,3,4]"},
    {.inputs = "f32[n,c,s]", .draw = "n=1..3 c=1..3 s=5|1,1|3,4|2,3,2"},
    {0},
};

static const struct op_def global_average_pool_grad;
static const struct op_def *const global_average_pool_gradients[] = {&global_average_pool_grad, NULL};

const struct op_def op_GlobalAveragePool = {
    .name = "GlobalAveragePool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = global_pool_infer,
    .backward = global_average_pool_backward,
    .ref = global_average_pool_ref,
    .cases = global_average_pool_cases,
    .gradients = global_average_pool_gradients,
};

static int global_average_pool_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x, y, dy = node_input(graph, node, 0)->shape;
  char text[128];
  if (infer_check_f32(graph, node, err) || infer_shape_attr(node, &x, err) ||
      global_pool_check(node, &x, err))
    return err->code;
  y = global_pool_shape(&x);
  if (!shape_is_same(&y, &dy))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this pool",
                      shape_text(&dy, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int global_average_pool_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data;
  float *dx = call->out[0].data;
  int64_t planes = shape_elems(&call->in[0].shape), elems = global_pool_elems(&call->out[0].shape);
  (void)err;
  for (int64_t p = 0; p < planes; p++, dx += elems) {
    float share = dy[p] / (float)elems;
    for (int64_t i = 0; i < elems; i++)
      dx[i] = share;
  }
  return ERR_OK;
}

/* dy -> dx; "shape": x's */
static const struct op_def global_average_pool_grad = {
    .name = "GlobalAveragePoolGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = global_average_pool_grad_infer,
    .ref = global_average_pool_grad_ref,
};

/* PRelu: elementwise x where not negative, else slope x, where the slope is broadcast to x (ONNX 7..16). */
#include "model/ops/shared/elementwise.h"

static int prelu_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value x = *node_input(graph, node, 0), slope = *node_input(graph, node, 1);
  struct shape shape;
  char left[128], right[128];
  if (infer_check_f32(graph, node, err))
    return err->code;
  if (slope.shape.rank == 1 && x.shape.rank > 2 && slope.shape.dim[0] == x.shape.dim[1] &&
      slope.shape.dim[0] != 1 && slope.shape.dim[0] != x.shape.dim[x.shape.rank - 1])
    return node_error(node, err, ERR_UNSUPPORTED,
                      "a slope along the channels, as before opset 7, is not supported");
  if (!broadcast_shapes(&x.shape, &slope.shape, &shape) || !shape_is_same(&shape, &x.shape))
    return node_error(node, err, ERR_INVALID, "the slope's shape %s does not broadcast to %s",
                      shape_text(&slope.shape, left, sizeof left), shape_text(&x.shape, right, sizeof right));
  return infer_f32(graph, node, 0, &x.shape, err);
}

BINARY_LOOP(prelu_ref, float, x > 0.0f ? x : x * y)

/* dx = dy where x > 0, else dy slope; dslope = sum of dy x where x <= 0 */
static int prelu_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->inputs[1]};
  (void)err;
  if (autodiff_wants(ad, node, 0))
    autodiff_add(ad, node, 0, backward_node(graph, "PReluGrad", (struct value_list){inputs, 3}, ATTRS_NONE));
  if (autodiff_wants(ad, node, 1))
    backward_add_summed(ad, graph, node, 1,
                        backward_node(graph, "PReluSlopeGrad", (struct value_list){inputs, 2}, ATTRS_NONE));
  return ERR_OK;
}

static int prelu_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *slope = call->in[2].data;
  float *dx = call->out[0].data;
  struct broadcast walk;
  int64_t at = 0;
  (void)err;
  broadcast_init(&walk, &call->out[0].shape, &call->in[2].shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), at += walk.run)
    ELEMENTWISE_FOR (j, walk.run)
      dx[at + j] = x[at + j] > 0.0f ? dy[at + j] : dy[at + j] * slope[walk.at[0] + j * walk.step[0]];
  return ERR_OK;
}

UNARY_GRAD_REF(prelu_slope_grad_ref, NO_PARAMS, v > 0.0f ? 0.0f : dy * v)

static const struct op_case prelu_cases[] = {
    {.inputs = "f32[2,3,2]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5,-0.5,-0.8 f32[3,1]"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5 f32[5]"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5 f32[1]"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.5,-0.4,0.3,-2,-3,1.5 f32[2,5]"},
    {.inputs = "f32{apart}[a,b,c,c] s",
     .draw = "a=1..3 b=1..4 c=1..3 s=f32[b,1,1]|f32[1]|f32[]|f32[a,b,1,c]"},
    {0},
};

static const struct op_def prelu_grad, prelu_slope_grad;
static const struct op_def *const prelu_gradients[] = {&prelu_grad, &prelu_slope_grad, NULL};

const struct op_def op_PRelu = {
    .name = "PRelu",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = prelu_infer,
    .backward = prelu_backward,
    .ref = prelu_ref,
    .cases = prelu_cases,
    .gradients = prelu_gradients,
};

/* dy, x, slope -> dx */
static const struct op_def prelu_grad = {
    .name = "PReluGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .ref = prelu_grad_ref,
};

/* dy, x -> the slope's gradient, before it is summed to the slope's shape */
static const struct op_def prelu_slope_grad = {
    .name = "PReluSlopeGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same_f32,
    .ref = prelu_slope_grad_ref,
};

/* Dropout (ONNX 7..13): drops in a graph in training, and where training_mode (since 12) is true; else the
   identity. Its gradient scales by the same mask. */
#include "common/agree/random.h"
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

static int check_ratio(const struct node *node, double ratio, struct err *err) {
  if (ratio >= 0.0 && ratio < 1.0)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "ratio is %g; it must be at least 0 and below 1", ratio);
}

/* Before opset 12 the ratio is an attribute, since then an input. */
static double attr_ratio(const struct graph *graph, const struct node *node) {
  return graph->opset < 12 ? node_attr_float(node, "ratio", 0.5f) : 0.5;
}

static int dropout_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *ratio = node_input(graph, node, 1), *mode = node_input(graph, node, 2);
  struct value x = *node_input(graph, node, 0);
  if (x.dtype != DTYPE_F32 || (ratio && ratio->dtype != DTYPE_F32))
    return node_error(node, err, ERR_UNSUPPORTED, "only f32 is supported here");
  if (ratio && shape_elems(&ratio->shape) != 1)
    return node_error(node, err, ERR_INVALID, "ratio ('%s') must be a scalar", ratio->name);
  if (mode && (mode->dtype != DTYPE_BOOL || shape_elems(&mode->shape) != 1))
    return node_error(node, err, ERR_INVALID, "training_mode ('%s') must be a scalar bool", mode->name);
  if (check_ratio(node, attr_ratio(graph, node), err))
    return err->code;
  if (ratio && ratio->data && check_ratio(node, *(const float *)ratio->data, err))
    return err->code;
  if (infer_f32(graph, node, 0, &x.shape, err))
    return err->code;
  return infer_output(graph, node, 1, &(struct tensor){.dtype = DTYPE_BOOL, .shape = x.shape}, err);
}

static int dropout_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  const struct value *ratio = node_input(graph, node, 1), *mode = node_input(graph, node, 2);
  int dy = autodiff_grad(ad, node, 0);
  bool drops = graph->is_training || (mode && mode->data && *(const uint8_t *)mode->data != 0);
  struct attr attr;
  if (!graph->is_training && mode && !mode->data)
    return node_error(node, err, ERR_UNSUPPORTED, "training_mode ('%s') must be a constant", mode->name);
  if (ratio && !ratio->data)
    return node_error(node, err, ERR_UNSUPPORTED, "ratio ('%s') must be a constant", ratio->name);
  if (!drops) {
    autodiff_add(ad, node, 0, dy);
    return ERR_OK;
  }
  attr = attr_of_float("ratio", ratio ? *(const float *)ratio->data : (float)attr_ratio(graph, node));
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "DropoutGrad", VALUES(dy, backward_keep(graph, node, 1)), ATTR_LIST(attr)));
  return ERR_OK;
}

static float kept_scale(double ratio) {
  return (float)(1.0 / (1.0 - ratio));
}

static int dropout_ref(const struct op_call *call, struct err *err) {
  const struct op_context *context = &call->context;
  const float *x = call->in[0].data, *ratio_input = call->in[1].data;
  const uint8_t *mode = call->in[2].data;
  double ratio = ratio_input ? *ratio_input : attr_ratio(call->graph, call->node);
  uint64_t key = random_key(context->seed, context->step, context->microbatch, (uint64_t)call->node->index);
  uint8_t *mask = call->out[1].data;
  bool drops = call->graph->is_training || (mode && *mode);
  float *y = call->out[0].data, scale = drops ? kept_scale(ratio) : 1.0f;
  int64_t elems = shape_elems(&call->out[0].shape);
  if (check_ratio(call->node, ratio, err))
    return err->code;
  for (int64_t i = 0; i < elems; i++) {
    bool is_kept = !drops || random_uniform(key, (uint64_t)i) >= ratio;
    y[i] = is_kept ? x[i] * scale : 0.0f;
    if (mask)
      mask[i] = is_kept;
  }
  return ERR_OK;
}

static const struct op_case dropout_cases[] = {
    {.inputs = "f32[4,6]"},
    {.inputs = "f32[4,6]", .outputs = 2},
    {.inputs = "f32[4,6] f32[]==0.25", .outputs = 2},
    {.inputs = "f32[4,6] f32[]==0"},
    {.inputs = "f32[4,6]", .outputs = 2, .is_eval = true},
    {.inputs = "f32[4,6] f32[]==0.75 bool[]==1", .outputs = 2, .is_eval = true},
    {.inputs = "f32[4,6] - bool[]==0", .is_eval = true},
    {.inputs = "f32[4,6]", .attrs = "ratio=0.25f", .opset = 10},
    {.inputs = "f32[a,b] f32[]==r", .draw = "a=1..5 b=1..7 r=0|0.3|0.7", .outputs = 2},
    {0},
};

static const struct op_def dropout_grad;
static const struct op_def *const dropout_gradients[] = {&dropout_grad, NULL};

const struct op_def op_Dropout = {
    .name = "Dropout",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 2,
    .min_opset = 7,
    .flags = OP_INPLACE | OP_RANDOM,
    .infer = dropout_infer,
    .backward = dropout_backward,
    .ref = dropout_ref,
    .cases = dropout_cases,
    .gradients = dropout_gradients,
};

static int dropout_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct value dy = *node_input(graph, node, 0);
  const struct value *mask = node_input(graph, node, 1);
  if (dy.dtype != DTYPE_F32 || mask->dtype != DTYPE_BOOL || !shape_is_same(&dy.shape, &mask->shape))
    return node_error(node, err, ERR_INVALID, "the mask does not fit the gradient");
  if (check_ratio(node, node_attr_float(node, "ratio", 0.5f), err))
    return err->code;
  return infer_f32(graph, node, 0, &dy.shape, err);
}

static int dropout_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data;
  const uint8_t *mask = call->in[1].data;
  float *dx = call->out[0].data, scale = kept_scale(node_attr_float(call->node, "ratio", 0.5f));
  int64_t elems = shape_elems(&call->out[0].shape);
  (void)err;
  for (int64_t i = 0; i < elems; i++)
    dx[i] = mask[i] ? dy[i] * scale : 0.0f;
  return ERR_OK;
}

/* dy, mask bool -> dx; ratio */
static const struct op_def dropout_grad = {
    .name = "DropoutGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = dropout_grad_infer,
    .ref = dropout_grad_ref,
};

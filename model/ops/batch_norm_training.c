/* BatchNormTraining: batch norm on the batch's own statistics, as a train graph has it, and its gradient.
   x f32[n,c,...], scale f32[c], b f32[c] -> y, batch_mean f32[c], batch_var f32[c] (of the population),
   inv_std f32[c] = 1 / sqrt(batch_var + epsilon). (Ioffe and Szegedy, 2015.) */
#include <math.h>

#include "model/ops/batch_norm.h"
#include "model/ops/shared/infer.h"

static int training_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, channels;
  struct batch_norm bn;
  if (batch_norm_init(&bn, graph, node,
                      (struct batch_norm_inputs){.x = 0, .first_vector = 1, .last_vector = 2}, err) ||
      infer_f32(graph, node, 0, &x, err))
    return err->code;
  channels = (struct shape){.rank = 1, .dim = {bn.c}};
  for (int i = 1; i < node->n_outputs; i++)
    if (infer_f32(graph, node, i, &channels, err))
      return err->code;
  return ERR_OK;
}

/* The statistics are results for others to read, not a path for gradients. */
static int training_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->inputs[1], node->outputs[1],
                  node->outputs[3]};
  const struct node *grad;
  for (int i = 1; i < 4; i++)
    if (autodiff_grad(ad, node, i) >= 0)
      return node_error(node, err, ERR_UNSUPPORTED, "no gradient flows through its statistics");
  grad = graph_add_node(graph, "BatchNormGrad", (struct value_list){inputs, 5}, 3, node_attrs(node));
  for (int i = 0; i < 3; i++)
    autodiff_add(ad, node, i, grad->outputs[i]);
  return ERR_OK;
}

static int training_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *scale = call->in[1].data, *b = call->in[2].data;
  float *batch_mean = call->out[1].data, *batch_variance = call->out[2].data, *inv_std = call->out[3].data;
  double epsilon = node_attr_float(call->node, "epsilon", 1e-5f);
  struct batch_norm bn = batch_norm_of(&call->in[0].shape);
  (void)err;
  for (int64_t k = 0; k < bn.c; k++) {
    double mean, variance, inverse;
    batch_norm_moments(&bn, x, k, &mean, &variance);
    inverse = 1.0 / sqrt(variance + epsilon);
    batch_norm_apply(&bn, x, call->out[0].data, k,
                     (struct affine){scale[k] * inverse, b[k] - mean * scale[k] * inverse});
    batch_mean[k] = (float)mean;
    batch_variance[k] = (float)variance;
    inv_std[k] = (float)inverse;
  }
  return ERR_OK;
}

static const struct op_case training_cases[] = {
    {.inputs = "f32[4,3,5,2] f32[3] f32[3]", .outputs = 4},
    {.inputs = "f32[6,3] f32[3] f32[3]", .attrs = "epsilon=0.1f", .outputs = 4},
    {.inputs = "f32[3,2,7] f32[2] f32[2]", .attrs = "epsilon=0.001f", .outputs = 4},
    {.inputs = "f32[2,16,4,4] f32[16] f32[16]", .outputs = 4},
    {.inputs = "f32[2,3,64,70] f32[3] f32[3]", .outputs = 4, .is_not_smooth = true},
    {.inputs = "f32[n,c,h,w] f32[c] f32[c]",
     .attrs = "epsilon=e",
     .draw = "n=2..3 c=1..4 h=2..4 w=1..4 e=0.1f|0.01f",
     .outputs = 4},
    {0},
};

static const struct op_def batch_norm_grad;
static const struct op_def *const batch_norm_training_gradients[] = {&batch_norm_grad, NULL};

const struct op_def op_BatchNormTraining = {
    .name = "BatchNormTraining",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 4,
    .max_outputs = 4,
    .infer = training_infer,
    .backward = training_backward,
    .ref = training_ref,
    .cases = training_cases,
    .gradients = batch_norm_training_gradients,
};

static int grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape dy = node_input(graph, node, 0)->shape, x = node_input(graph, node, 1)->shape, channels;
  struct batch_norm bn;
  if (batch_norm_init(&bn, graph, node,
                      (struct batch_norm_inputs){.x = 1, .first_vector = 2, .last_vector = 4}, err))
    return err->code;
  if (!shape_is_same(&dy, &x))
    return node_error(node, err, ERR_INVALID, "the gradient does not have the input's shape");
  channels = (struct shape){.rank = 1, .dim = {bn.c}};
  if (infer_f32(graph, node, 0, &x, err) || infer_f32(graph, node, 1, &channels, err))
    return err->code;
  return infer_f32(graph, node, 2, &channels, err);
}

/* With x_hat = (x - mean) inv_std and m elements a channel:
   db = sum(dy), dscale = sum(dy x_hat), dx = scale inv_std (dy - db / m - x_hat dscale / m) */
static void grad_channel(const struct batch_norm *bn, const struct op_call *call, int64_t k) {
  const float *dy = call->in[0].data, *x = call->in[1].data;
  double scale = ((const float *)call->in[2].data)[k], mean = ((const float *)call->in[3].data)[k];
  double inv_std = ((const float *)call->in[4].data)[k];
  double db = 0.0, dscale = 0.0, count = (double)(bn->n * bn->inner);
  float *dx = call->out[0].data;
  for (int64_t s = 0; s < bn->n; s++)
    for (int64_t i = 0; i < bn->inner; i++) {
      int64_t at = (s * bn->c + k) * bn->inner + i;
      db += dy[at];
      dscale += dy[at] * (x[at] - mean) * inv_std;
    }
  for (int64_t s = 0; s < bn->n; s++)
    for (int64_t i = 0; i < bn->inner; i++) {
      int64_t at = (s * bn->c + k) * bn->inner + i;
      double x_hat = (x[at] - mean) * inv_std;
      dx[at] = (float)(scale * inv_std * (dy[at] - db / count - x_hat * dscale / count));
    }
  ((float *)call->out[1].data)[k] = (float)dscale;
  ((float *)call->out[2].data)[k] = (float)db;
}

static int grad_ref(const struct op_call *call, struct err *err) {
  struct batch_norm bn = batch_norm_of(&call->in[1].shape);
  (void)err;
  for (int64_t k = 0; k < bn.c; k++)
    grad_channel(&bn, call, k);
  return ERR_OK;
}

/* dy, x, scale, batch_mean, inv_std -> dx, dscale, db */
static const struct op_def batch_norm_grad = {
    .name = "BatchNormGrad",
    .domain = "ai.weir",
    .min_inputs = 5,
    .max_inputs = 5,
    .min_outputs = 3,
    .max_outputs = 3,
    .infer = grad_infer,
    .ref = grad_ref,
};

/* SoftmaxCrossEntropyLoss (ONNX 12..13) and its gradient, from its second output, the logarithms of the
   probabilities. */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/class_loss.h"
#include "model/ops/shared/infer.h"

static int softmax_loss_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  if (class_loss_infer(graph, node, err))
    return err->code;
  return infer_f32(graph, node, 1, &x, err);
}

/* The class weights are constants to it. */
static int softmax_loss_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                 struct err *err) {
  int log_prob = backward_keep(graph, node, 1);
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1], node->n_inputs > 2 ? node->inputs[2] : -1,
                  log_prob, autodiff_grad(ad, node, 1)};
  (void)err;
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "SoftmaxCrossEntropyLossGrad", (struct value_list){inputs, 5}, node_attrs(node)));
  return ERR_OK;
}

/* log(sum(exp(x))) over n elements, `stride` apart */
static double log_sum_exp(const float *x, int64_t n, int64_t stride) {
  double greatest = x[0], sum = 0.0;
  for (int64_t k = 1; k < n; k++)
    greatest = fmax(greatest, x[k * stride]);
  for (int64_t k = 0; k < n; k++)
    sum += exp(x[k * stride] - greatest);
  return log(sum) + greatest;
}

static int softmax_loss_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  float *log_prob = call->out[1].data;
  struct class_loss_sum sum = {.out = call->out[0].data};
  struct class_loss loss;
  double scale;
  if (class_loss_init(&loss, call->graph, call->node, &call->in[0].shape, err) ||
      class_loss_scale(&loss, call, &scale, err))
    return err->code;
  for (int64_t s = 0, i = 0; s < loss.n; s++)
    for (int64_t j = 0; j < loss.inner; j++, i++) {
      int64_t at = s * loss.classes * loss.inner + j;
      double total = log_sum_exp(x + at, loss.classes, loss.inner),
             weight = class_loss_weight(&loss, call, i);
      int64_t label = weight != 0.0 ? class_loss_label(call, i) : 0;
      class_loss_add(&loss, &sum, i, weight != 0.0 ? weight * (total - x[at + label * loss.inner]) : 0.0);
      for (int64_t k = 0; k < loss.classes && log_prob; k++)
        log_prob[at + k * loss.inner] = (float)(x[at + k * loss.inner] - total);
    }
  class_loss_finish(&loss, &sum, scale);
  return ERR_OK;
}

static const struct op_case softmax_loss_cases[] = {
    {.inputs = "f32[4,5] i64{5}[4]"},
    {.inputs = "f32[3,5] i32{5}[3] f32[5]==0.5,1,2,0.25,0.75", .attrs = "reduction=sum", .outputs = 2},
    {.inputs = "f32[3,4] i64[3]=1,-7,2", .attrs = "ignore_index=-7 reduction=none"},
    {.inputs = "f32[2,4,2,3] i64{4}[2,2,3] f32[4]==0.5,1,2,0.25", .attrs = "ignore_index=1", .opset = 12},
    {.inputs = "f32[2,3]=500,-500,499,-300,-301,-302 i64[2]=1,0", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[n,c,d] i64{c}[n,d] w",
     .attrs = "reduction=r ignore_index=0",
     .draw = "n=2..4 c=3..5 d=1..3 r=none|sum|mean w=-|f32[c]==0.5,1,2",
     .outputs = 2},
    {0},
};

static const struct op_def softmax_loss_grad;
static const struct op_def *const softmax_loss_gradients[] = {&softmax_loss_grad, NULL};

const struct op_def op_SoftmaxCrossEntropyLoss = {
    .name = "SoftmaxCrossEntropyLoss",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 2,
    .min_opset = 12,
    .infer = softmax_loss_infer,
    .backward = softmax_loss_backward,
    .ref = softmax_loss_ref,
    .cases = softmax_loss_cases,
    .gradients = softmax_loss_gradients,
};

static int softmax_loss_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 3)->shape;
  struct class_loss loss;
  if (class_loss_init(&loss, graph, node, &x, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

/* dlog_prob NULL: none. */
struct sample {
  const float *log_prob, *dlog_prob;
  double dloss;
  int64_t label;
};

/* The classes of one sample: with g = dlog_prob - dloss onehot(label), dx = g - exp(log_prob) sum(g). */
static void grad_sample(const struct class_loss *loss, const struct sample *sample, float *dx) {
  const float *log_prob = sample->log_prob, *dlog_prob = sample->dlog_prob;
  double dloss = sample->dloss, sum = -dloss;
  for (int64_t k = 0; k < loss->classes && dlog_prob; k++)
    sum += dlog_prob[k * loss->inner];
  for (int64_t k = 0; k < loss->classes; k++) {
    double g = (dlog_prob ? dlog_prob[k * loss->inner] : 0.0) - (k == sample->label ? dloss : 0.0);
    dx[k * loss->inner] = (float)(g - exp(log_prob[k * loss->inner]) * sum);
  }
}

static int softmax_loss_grad_ref(const struct op_call *call, struct err *err) {
  const float *dloss = call->in[0].data, *log_prob = call->in[3].data, *dlog_prob = call->in[4].data;
  float *dx = call->out[0].data;
  struct class_loss loss;
  double scale;
  if (class_loss_init(&loss, call->graph, call->node, &call->in[3].shape, err) ||
      class_loss_scale(&loss, call, &scale, err))
    return err->code;
  for (int64_t s = 0, i = 0; s < loss.n; s++)
    for (int64_t j = 0; j < loss.inner; j++, i++) {
      int64_t at = s * loss.classes * loss.inner + j;
      double weight = class_loss_weight(&loss, call, i);
      struct sample sample = {.log_prob = log_prob + at,
                              .dlog_prob = dlog_prob ? dlog_prob + at : NULL,
                              .label = class_loss_label(call, i)};
      if (dloss && weight != 0.0)
        sample.dloss = weight * scale * dloss[loss.reduction == CLASS_REDUCE_NONE ? i : 0];
      grad_sample(&loss, &sample, dx + at);
    }
  return ERR_OK;
}

/* dloss or absent, labels, weights or absent, log_prob, dlog_prob or absent -> dx; the attributes of
   SoftmaxCrossEntropyLoss */
static const struct op_def softmax_loss_grad = {
    .name = "SoftmaxCrossEntropyLossGrad",
    .domain = "ai.weir",
    .min_inputs = 5,
    .max_inputs = 5,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = softmax_loss_grad_infer,
    .ref = softmax_loss_grad_ref,
};

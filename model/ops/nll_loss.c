/* NegativeLogLikelihoodLoss (ONNX 12..22) and its gradient. */
#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/class_loss.h"
#include "model/ops/shared/infer.h"

/* The class weights are constants to it. */
static int nll_loss_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1], node->n_inputs > 2 ? node->inputs[2] : -1};
  struct attr *attrs = mem_new(((size_t)node->n_attrs + 1) * sizeof *attrs);
  int n = class_loss_attrs(node, &x, attrs);
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "NegativeLogLikelihoodLossGrad", (struct value_list){inputs, 3},
                             (struct attr_list){attrs, n}));
  free(attrs);
  return ERR_OK;
}

static int nll_loss_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  struct class_loss_sum sum = {.out = call->out[0].data};
  struct class_loss loss;
  double scale;
  if (class_loss_init(&loss, call->graph, call->node, &call->in[0].shape, err) ||
      class_loss_scale(&loss, call, &scale, err))
    return err->code;
  for (int64_t s = 0, i = 0; s < loss.n; s++)
    for (int64_t j = 0; j < loss.inner; j++, i++) {
      double weight = class_loss_weight(&loss, call, i);
      int64_t label = weight != 0.0 ? class_loss_label(call, i) : 0;
      class_loss_add(&loss, &sum, i,
                     weight != 0.0 ? -weight * x[(s * loss.classes + label) * loss.inner + j] : 0.0);
    }
  class_loss_finish(&loss, &sum, scale);
  return ERR_OK;
}

static const struct op_case nll_loss_cases[] = {
    {.inputs = "f32[4,5] i64{5}[4]"},
    {.inputs = "f32[3,5] i32{5}[3] f32[5]==0.5,1,2,0.25,0.75", .attrs = "reduction=sum"},
    {.inputs = "f32[3,4] i64[3]=1,-7,2", .attrs = "ignore_index=-7 reduction=none"},
    {.inputs = "f32[2,4,2,3] i64{4}[2,2,3] f32[4]==0.5,1,2,0.25", .attrs = "ignore_index=1"},
    {.inputs = "f32[n,c,d] i64{c}[n,d] w",
     .attrs = "reduction=r ignore_index=0",
     .draw = "n=2..4 c=3..5 d=1..3 r=none|sum|mean w=-|f32[c]==0.5,1,2"},
    {0},
};

static const struct op_def nll_loss_grad;
static const struct op_def *const nll_loss_gradients[] = {&nll_loss_grad, NULL};

const struct op_def op_NegativeLogLikelihoodLoss = {
    .name = "NegativeLogLikelihoodLoss",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 12,
    .infer = class_loss_infer,
    .backward = nll_loss_backward,
    .ref = nll_loss_ref,
    .cases = nll_loss_cases,
    .gradients = nll_loss_gradients,
};

static int nll_loss_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct class_loss loss;
  struct shape x;
  if (infer_shape_attr(node, &x, err) || class_loss_init(&loss, graph, node, &x, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

/* dx = -weight scale dloss at the label, 0 elsewhere */
static int nll_loss_grad_ref(const struct op_call *call, struct err *err) {
  const float *dloss = call->in[0].data;
  float *dx = call->out[0].data;
  struct class_loss loss;
  double scale;
  if (class_loss_init(&loss, call->graph, call->node, &call->out[0].shape, err) ||
      class_loss_scale(&loss, call, &scale, err))
    return err->code;
  memset(dx, 0, (size_t)shape_elems(&call->out[0].shape) * sizeof *dx);
  for (int64_t s = 0, i = 0; s < loss.n; s++)
    for (int64_t j = 0; j < loss.inner; j++, i++) {
      double weight = class_loss_weight(&loss, call, i);
      double dsample = dloss[loss.reduction == CLASS_REDUCE_NONE ? i : 0];
      if (weight != 0.0)
        dx[(s * loss.classes + class_loss_label(call, i)) * loss.inner + j] =
            (float)(-weight * scale * dsample);
    }
  return ERR_OK;
}

/* dloss, labels, weights -> dx; the attributes of NegativeLogLikelihoodLoss and "shape": x's */
static const struct op_def nll_loss_grad = {
    .name = "NegativeLogLikelihoodLossGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = nll_loss_grad_infer,
    .ref = nll_loss_grad_ref,
};

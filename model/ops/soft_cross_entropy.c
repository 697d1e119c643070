/* SoftCrossEntropy: CrossEntropy where labels are probabilities of the classes, as PyTorch's CrossEntropyLoss
   takes them, and its gradient.
   scores f32[n,...] with the classes along `axis` (default 1), labels f32 of that shape, weights f32[classes]
   (optional) -> loss_sum f32[]: of each row the sum of t[c] (log(sum(exp(x))) - x[c]), where t is
   weights[c] ((1 - label_smoothing) labels[c] + label_smoothing / classes). Labels get no gradient: they are
   data. */
#include "model/ops/soft_cross_entropy.h"

#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* Checks inputs `first` (scores) and the two behind it. */
static int check_inputs(const struct graph *graph, const struct node *node, int first, struct err *err) {
  const struct value *scores = node_input(graph, node, first), *labels = node_input(graph, node, first + 1);
  const struct value *weights = node_input(graph, node, first + 2);
  struct shape unused;
  struct class_axis axis;
  char a[128], b[128];
  if (scores->dtype != DTYPE_F32 || labels->dtype != DTYPE_F32 || (weights && weights->dtype != DTYPE_F32))
    return node_error(node, err, ERR_INVALID, "scores, labels and weights must be f32");
  if (scores->shape.rank < 2 || !shape_is_same(&scores->shape, &labels->shape))
    return node_error(node, err, ERR_INVALID, "labels %s are no probabilities of the classes of scores %s",
                      shape_text(&labels->shape, b, sizeof b), shape_text(&scores->shape, a, sizeof a));
  if (class_rows_axis(node, &scores->shape, &axis, &unused, err))
    return err->code;
  return weights ? infer_check_vector(graph, node, first + 2, axis.classes, err) : ERR_OK;
}

int soft_rows_init(struct soft_rows *rows, const struct node *node, const struct tensor inputs[3],
                   struct err *err) {
  struct shape unused;
  if (class_rows_axis(node, &inputs[0].shape, &rows->axis, &unused, err))
    return err->code;
  rows->smoothing = (double)node_attr_float(node, "label_smoothing", 0);
  rows->spread = rows->smoothing / (double)rows->axis.classes;
  rows->weights = inputs[2].data;
  return ERR_OK;
}

static int soft_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct shape scalar = {0};
  return check_inputs(graph, node, 0, err) ? (int)err->code : infer_f32(graph, node, 0, &scalar, err);
}

static int soft_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dsum = autodiff_grad(ad, node, 0);
  int inputs[] = {dsum, node->inputs[0], node->inputs[1], node->n_inputs > 2 ? node->inputs[2] : -1};
  (void)err;
  if (dsum >= 0)
    autodiff_add(
        ad, node, 0,
        backward_node(graph, "SoftCrossEntropyGrad", (struct value_list){inputs, 4}, node_attrs(node)));
  return ERR_OK;
}

static double row_loss(const struct soft_rows *rows, const float *x, const float *label) {
  int64_t stride = rows->axis.inner;
  struct class_norm norm = class_norm_of(x, rows->axis.classes, stride);
  double loss = 0.0;
  for (int64_t c = 0; c < rows->axis.classes; c++)
    loss += soft_target(rows, label[c * stride], c) * (norm.greatest - x[c * stride] + norm.rest);
  return loss;
}

static void row_gradient(const struct soft_rows *rows, const float *x, const float *label, double scale,
                         float *dx) {
  int64_t stride = rows->axis.inner;
  struct class_norm norm = class_norm_of(x, rows->axis.classes, stride);
  double total = 0.0;
  for (int64_t c = 0; c < rows->axis.classes; c++)
    total += soft_target(rows, label[c * stride], c);
  for (int64_t c = 0; c < rows->axis.classes; c++) {
    double softmax = exp(x[c * stride] - (norm.greatest + norm.rest));
    dx[c * stride] = (float)(scale * (total * softmax - soft_target(rows, label[c * stride], c)));
  }
}

static int soft_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *labels = call->in[1].data;
  struct soft_rows rows;
  double sum = 0.0;
  if (soft_rows_init(&rows, call->node, call->in, err))
    return err->code;
  for (int64_t o = 0; o < rows.axis.outer; o++)
    for (int64_t i = 0; i < rows.axis.inner; i++) {
      int64_t at = o * rows.axis.classes * rows.axis.inner + i;
      sum += row_loss(&rows, x + at, labels + at);
    }
  *(float *)call->out[0].data = (float)sum;
  return ERR_OK;
}

static const struct op_case soft_cases[] = {
    {.inputs = "f32[2,3] f32[2,3]==0.25,0.75,0,0,0,1"},
    {.inputs = "f32[1,4]=500,-500,499,-300 f32[1,4]==0.5,0.25,0.25,0", .is_not_smooth = true},
    {.inputs = "f32[2,3] f32[2,3]==1,0,0,0,0.5,0.5 f32[3]==0.5,0,2", .attrs = "label_smoothing=0.25f"},
    {.inputs = "f32[n,c,h] f32{0..1}[n,c,h] w",
     .attrs = "axis=1 label_smoothing=s",
     .draw = "n=1..3 c=2..6 h=1..20 s=0f|0.125f w=-|f32{0..2}[c]"},
    {.inputs = "f32[n,t,c] f32{0..1}[n,t,c]", .attrs = "axis=-1", .draw = "n=1..3 t=1..4 c=1..40"},
    {0},
};

static const struct op_def soft_cross_entropy_grad;
static const struct op_def *const soft_gradients[] = {&soft_cross_entropy_grad, NULL};

const struct op_def op_SoftCrossEntropy = {
    .name = "SoftCrossEntropy",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = soft_infer,
    .backward = soft_backward,
    .ref = soft_ref,
    .cases = soft_cases,
    .gradients = soft_gradients,
};

static int soft_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape scores = node_input(graph, node, 1)->shape;
  if (infer_check_rank(graph, node, 0, 0, err) || check_inputs(graph, node, 1, err))
    return err->code;
  return infer_f32(graph, node, 0, &scores, err);
}

static int soft_grad_ref(const struct op_call *call, struct err *err) {
  const float *dsum = call->in[0].data, *x = call->in[1].data, *labels = call->in[2].data;
  float *dx = call->out[0].data;
  struct soft_rows rows;
  if (soft_rows_init(&rows, call->node, call->in + 1, err))
    return err->code;
  for (int64_t o = 0; o < rows.axis.outer; o++)
    for (int64_t i = 0; i < rows.axis.inner; i++) {
      int64_t at = o * rows.axis.classes * rows.axis.inner + i;
      row_gradient(&rows, x + at, labels + at, *dsum, dx + at);
    }
  return ERR_OK;
}

/* dsum f32[], scores, labels, weights -> dscores */
static const struct op_def soft_cross_entropy_grad = {
    .name = "SoftCrossEntropyGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = soft_grad_infer,
    .ref = soft_grad_ref,
};

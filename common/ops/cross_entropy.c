/* CrossEntropy: the loss of a classifier over one microbatch, from logits and labels, and its gradient.
   logits f32[n,c], labels i64[n] -> loss_sum f32[] (the sum over samples of -log softmax(logits)[label]),
   correct f32[] (samples whose greatest logit, the first of equals, is the label's). */
#include <math.h>

#include "common/ops/backward.h"
#include "common/ops/infer.h"

/* Checks inputs `first` (logits) and `first` + 1 (labels). */
static int check_inputs(const struct graph *graph, const struct node *node, int first, struct err *err) {
  const struct value *logits = node_input(graph, node, first), *labels = node_input(graph, node, first + 1);
  if (logits->dtype != DTYPE_F32 || labels->dtype != DTYPE_I64)
    return node_error(node, err, ERR_INVALID, "logits must be f32 and labels i64, they are %s and %s",
                      dtype_name(logits->dtype), dtype_name(labels->dtype));
  if (infer_check_rank(graph, node, first, 2, err))
    return err->code;
  return infer_check_vector(graph, node, first + 1, logits->shape.dim[0], err);
}

static int cross_entropy_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct shape scalar = {0};
  if (check_inputs(graph, node, 0, err) || infer_output(graph, node, 0, DTYPE_F32, &scalar, err))
    return err->code;
  return infer_output(graph, node, 1, DTYPE_F32, &scalar, err);
}

static int cross_entropy_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                  struct err *err) {
  int dsum = autodiff_grad(ad, node, 0);
  (void)err;
  if (dsum >= 0)
    autodiff_add(ad, node, 0,
                 backward_node(graph, "CrossEntropyGrad", (int[]){dsum, node->inputs[0], node->inputs[1]}, 3,
                               NULL, 0));
  return ERR_OK;
}

static int check_labels(const struct node *node, const struct tensor *labels, int64_t classes,
                        struct err *err) {
  const int64_t *label = labels->data;
  for (int64_t i = 0; i < labels->shape.dim[0]; i++)
    if (label[i] < 0 || label[i] >= classes)
      return node_error(node, err, ERR_INVALID, "label %lld of sample %lld is not in [0, %lld)",
                        (long long)label[i], (long long)i, (long long)classes);
  return ERR_OK;
}

static int64_t greatest_index(const float *row, int64_t n) {
  int64_t greatest = 0;
  for (int64_t k = 1; k < n; k++)
    if (row[k] > row[greatest])
      greatest = k;
  return greatest;
}

/* log(sum(exp(row - greatest))) */
static double log_sum(const float *row, int64_t n, double greatest) {
  double sum = 0.0;
  for (int64_t k = 0; k < n; k++)
    sum += exp(row[k] - greatest);
  return log(sum);
}

static int cross_entropy_ref(const struct op_call *call, struct err *err) {
  const float *row = call->in[0].data;
  const int64_t *labels = call->in[1].data;
  float *loss_sum = call->out[0].data, *correct_count = call->out[1].data;
  int64_t n = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
  double loss = 0.0, correct = 0.0;
  if (check_labels(call->node, &call->in[1], classes, err))
    return err->code;
  for (int64_t i = 0; i < n; i++, row += classes) {
    int64_t greatest = greatest_index(row, classes);
    loss += row[greatest] - (double)row[labels[i]] + log_sum(row, classes, row[greatest]);
    correct += greatest == labels[i];
  }
  *loss_sum = (float)loss;
  if (correct_count)
    *correct_count = (float)correct;
  return ERR_OK;
}

static const struct op_case cross_entropy_cases[] = {
    {.inputs = "f32[4,5] i64{5}[4]", .outputs = 2},
    {.inputs = "f32[1,3] i64[1]=2"},
    {.inputs = "f32[7,10] i64{10}[7]", .outputs = 2},
    {.inputs = "f32[2,3]=500,-500,499,-300,-301,-302 i64[2]=1,0", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[n,c] i64{c}[n]", .draw = "n=1..6 c=2..7", .outputs = 2},
    {0},
};

static const struct op_def cross_entropy_grad;
static const struct op_def *const cross_entropy_gradients[] = {&cross_entropy_grad, NULL};

const struct op_def op_CrossEntropy = {
    .name = "CrossEntropy",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 2,
    .infer = cross_entropy_infer,
    .backward = cross_entropy_backward,
    .ref = cross_entropy_ref,
    .cases = cross_entropy_cases,
    .gradients = cross_entropy_gradients,
};

static int cross_entropy_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape logits = node_input(graph, node, 1)->shape;
  if (infer_check_rank(graph, node, 0, 0, err) || check_inputs(graph, node, 1, err))
    return err->code;
  return infer_output(graph, node, 0, DTYPE_F32, &logits, err);
}

/* dlogits = dsum (softmax(logits) - onehot(label)) */
static int cross_entropy_grad_ref(const struct op_call *call, struct err *err) {
  const float *dsum = call->in[0].data, *row = call->in[1].data;
  const int64_t *labels = call->in[2].data;
  float *grad = call->out[0].data;
  int64_t n = call->in[1].shape.dim[0], classes = call->in[1].shape.dim[1];
  if (check_labels(call->node, &call->in[2], classes, err))
    return err->code;
  for (int64_t i = 0; i < n; i++, row += classes, grad += classes) {
    double greatest = row[greatest_index(row, classes)], log_total = log_sum(row, classes, greatest);
    for (int64_t k = 0; k < classes; k++)
      grad[k] = (float)(*dsum * (exp(row[k] - greatest - log_total) - (k == labels[i])));
  }
  return ERR_OK;
}

/* dsum f32[], logits, labels -> dlogits */
static const struct op_def cross_entropy_grad = {
    .name = "CrossEntropyGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = cross_entropy_grad_infer,
    .ref = cross_entropy_grad_ref,
};

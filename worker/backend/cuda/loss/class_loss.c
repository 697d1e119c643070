/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, and their gradients. */
#include "model/ops/shared/class_loss.h"

#include "worker/backend/cuda/loss/class_rows.h"

static void read_labels(struct backend_program *program, struct cuda_step *step, struct cuda_class_step *own,
                        const struct class_loss *loss) {
  const struct value *labels = node_input(cuda_view(program)->graph, step->node, 1);
  own->pass.has_ignored = loss->has_ignored;
  own->pass.ignored = loss->ignored;
  own->labels = cuda_read(program, step, step->node->inputs[1],
                          labels->dtype == DTYPE_I32 ? CUDA_I32 : CUDA_I64, CUDA_DENSE);
  if (node_input(cuda_view(program)->graph, step->node, 2))
    own->weights = cuda_read(program, step, step->node->inputs[2], CUDA_F32, CUDA_DENSE);
}

/* X, labels, weights -> loss, and the logarithms of probabilities */
static bool prepare_loss(struct backend_program *program, const struct node *node, bool is_log) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_class_step own = cuda_class_step_of(program, node);
  struct class_loss loss;
  struct cuda_step *step;
  struct err err = ERR_NONE;
  if (class_loss_init(&loss, graph, node, &node_input(graph, node, 0)->shape, &err) ||
      !cuda_rows_init(&own.pass.rows, 1, loss.n, loss.classes, loss.inner))
    return false;
  step = cuda_step_new(program, node);
  own.pass.is_log = own.pass.is_of_labels = is_log;
  own.scores = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  read_labels(program, step, &own, &loss);
  if (loss.reduction == CLASS_REDUCE_NONE)
    own.row_loss = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  else
    own.out[0] = cuda_write(program, step, node->outputs[0], CUDA_F32, CUDA_DENSE);
  if (!is_log)
    own.log_prob = cuda_write_optional(program, step, 1, CUDA_ANY_TYPE, CUDA_DENSE);
  own.is_mean = loss.reduction == CLASS_REDUCE_MEAN;
  cuda_class_step_plan(program, step, &own);
  cuda_class_step_end(program, step, &own);
  return true;
}

static bool prepare_nll(struct backend_program *program, const struct node *node) {
  return prepare_loss(program, node, true);
}

static bool prepare_softmax_loss(struct backend_program *program, const struct node *node) {
  return prepare_loss(program, node, false);
}

/* First a pass over the labels, for the denominator of a mean. */
struct grad_step {
  struct cuda_class_step labels;
  struct cuda_label_grad grad;
  int dloss, log_prob, dlog_prob, gradient;
};

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct grad_step *own = step->details;
  struct cuda_label_grad grad = own->grad;
  (void)program;
  if (own->labels.is_mean && cuda_class_step_enqueue(&own->labels, step, stream, err))
    return err->code;
  grad.labels = cuda_arg_tensor(step, own->labels.labels);
  grad.weights = cuda_arg_tensor(step, own->labels.weights).data;
  grad.denominator = cuda_arg_tensor(step, own->labels.out[3]).data;
  grad.dloss = cuda_arg_tensor(step, own->dloss);
  grad.log_prob = cuda_arg_tensor(step, own->log_prob);
  grad.dlog_prob = cuda_arg_tensor(step, own->dlog_prob);
  grad.gradient = cuda_arg_tensor(step, own->gradient);
  cuda_label_grad_launch(&grad, stream);
  return cuda_check(step->node, cudaGetLastError(), "spread a loss's gradient", err);
}

static int read_optional(struct backend_program *program, struct cuda_step *step, int input) {
  return node_input(cuda_view(program)->graph, step->node, input)
             ? cuda_read(program, step, step->node->inputs[input], CUDA_ANY_TYPE, CUDA_DENSE)
             : -1;
}

/* dloss, labels, weights -> dX; of SoftmaxCrossEntropyLoss besides log_prob, dlog_prob */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct grad_step own = {.labels = cuda_class_step_of(program, node)};
  struct class_loss loss;
  struct cuda_step *step;
  struct err err = ERR_NONE;
  if (class_loss_init(&loss, graph, node, &node_output(graph, node, 0)->shape, &err) ||
      !cuda_rows_init(&own.grad.rows, 1, loss.n, loss.classes, loss.inner))
    return false;
  step = cuda_step_new(program, node);
  own.labels.pass.rows = own.grad.rows;
  own.labels.pass.is_log = own.labels.pass.is_of_labels = true;
  read_labels(program, step, &own.labels, &loss);
  own.grad.has_ignored = loss.has_ignored;
  own.grad.ignored = loss.ignored;
  own.grad.is_each = loss.reduction == CLASS_REDUCE_NONE;
  own.grad.lanes = cuda_rows_lanes(&own.grad.rows);
  own.dloss = read_optional(program, step, 0);
  own.log_prob = read_optional(program, step, 3);
  own.dlog_prob = read_optional(program, step, 4);
  own.gradient = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.labels.is_mean = loss.reduction == CLASS_REDUCE_MEAN;
  if (own.labels.is_mean)
    own.labels.out[3] = cuda_rows_scratch(program, step, 1);
  cuda_class_step_plan(program, step, &own.labels);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_grad;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_negative_log_likelihood_loss = {.op = "NegativeLogLikelihoodLoss",
                                                                     .prepare = prepare_nll};
const struct cuda_kernel cuda_kernel_negative_log_likelihood_loss_grad = {
    .op = "NegativeLogLikelihoodLossGrad", .prepare = prepare_grad};
const struct cuda_kernel cuda_kernel_softmax_cross_entropy_loss = {.op = "SoftmaxCrossEntropyLoss",
                                                                   .prepare = prepare_softmax_loss};
const struct cuda_kernel cuda_kernel_softmax_cross_entropy_loss_grad = {.op = "SoftmaxCrossEntropyLossGrad",
                                                                        .prepare = prepare_grad};

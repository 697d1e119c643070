/* CrossEntropy and SoftCrossEntropy, and their gradients. */
#include "model/ops/shared/class_rows.h"

#include "worker/backend/cuda/loss/class_rows.h"

/* Indices of classes are exact in f32. */
enum { CLASSES_MAX = 1 << 24 };

/* Reads scores, labels (`first` and the two behind it) and weights, after the attributes. */
static struct cuda_step *open_step(struct backend_program *program, const struct node *node, int first,
                                   bool is_soft, struct cuda_class_step *own) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_class_pass *pass = &own->pass;
  struct class_axis axis;
  struct shape labels;
  struct cuda_step *step;
  struct err err = ERR_NONE;
  *own = cuda_class_step_of(program, node);
  if (class_rows_axis(node, &node_input(graph, node, first)->shape, &axis, &labels, &err) ||
      axis.classes > CLASSES_MAX || !cuda_rows_init(&pass->rows, 1, axis.outer, axis.classes, axis.inner))
    return NULL;
  step = cuda_step_new(program, node);
  pass->smoothing = (double)node_attr_float(node, "label_smoothing", 0);
  own->scores = cuda_read(program, step, node->inputs[first], CUDA_ANY_TYPE, CUDA_DENSE);
  if (is_soft) {
    own->targets = cuda_read(program, step, node->inputs[first + 1], CUDA_ANY_TYPE, CUDA_DENSE);
  } else {
    own->labels = cuda_read(program, step, node->inputs[first + 1], CUDA_I64, CUDA_DENSE);
    pass->has_ignored = true;
    pass->ignored = node_attr_int(node, "ignore_index", -100);
    pass->is_log = node_attr_int(node, "log_probabilities", 0) != 0;
  }
  if (node_input(graph, node, first + 2))
    own->weights = cuda_read(program, step, node->inputs[first + 2], CUDA_F32, CUDA_DENSE);
  return step;
}

/* scores, labels, weights -> the sums that the node has */
static bool prepare_loss(struct backend_program *program, const struct node *node, bool is_soft) {
  struct cuda_class_step own;
  struct cuda_step *step = open_step(program, node, 0, is_soft, &own);
  if (!step)
    return false;
  for (int o = 0; o < CLASS_ROWS_SUMS; o++)
    own.out[o] = cuda_write_optional(program, step, o, CUDA_F32, CUDA_DENSE);
  cuda_class_step_plan(program, step, &own);
  cuda_class_step_end(program, step, &own);
  return true;
}

/* dsum, scores, labels, weights -> dscores */
static bool prepare_grad(struct backend_program *program, const struct node *node, bool is_soft) {
  struct cuda_class_step own;
  struct cuda_step *step = open_step(program, node, 1, is_soft, &own);
  if (!step)
    return false;
  own.dsum = cuda_read(program, step, node->inputs[0], CUDA_F32, CUDA_DENSE);
  own.gradient = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_class_step_plan(program, step, &own);
  cuda_class_step_end(program, step, &own);
  return true;
}

static bool prepare_hard(struct backend_program *program, const struct node *node) {
  return prepare_loss(program, node, false);
}

static bool prepare_hard_grad(struct backend_program *program, const struct node *node) {
  return prepare_grad(program, node, false);
}

static bool prepare_soft(struct backend_program *program, const struct node *node) {
  return prepare_loss(program, node, true);
}

static bool prepare_soft_grad(struct backend_program *program, const struct node *node) {
  return prepare_grad(program, node, true);
}

const struct cuda_kernel cuda_kernel_cross_entropy = {.op = "CrossEntropy", .prepare = prepare_hard};
const struct cuda_kernel cuda_kernel_cross_entropy_grad = {.op = "CrossEntropyGrad",
                                                           .prepare = prepare_hard_grad};
const struct cuda_kernel cuda_kernel_soft_cross_entropy = {.op = "SoftCrossEntropy", .prepare = prepare_soft};
const struct cuda_kernel cuda_kernel_soft_cross_entropy_grad = {.op = "SoftCrossEntropyGrad",
                                                                .prepare = prepare_soft_grad};

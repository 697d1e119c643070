/* ElementLoss and its gradient as steps. */
#include "worker/backend/cuda/loss/element_loss.h"

#include <string.h>

#include "worker/backend/cuda/engine/cuda.h"

struct element_step {
  struct cuda_element_loss loss;
  int x, target, weights, dsum, gradient, sums, out; /* arguments; -1: none */
};

static const char *const kind_names[] = {
    [ELEMENT_MSE] = "mse",
    [ELEMENT_L1] = "l1",
    [ELEMENT_SMOOTH_L1] = "smooth_l1",
    [ELEMENT_HUBER] = "huber",
    [ELEMENT_BCE_WITH_LOGITS] = "bce_with_logits",
    [ELEMENT_KL_DIV] = "kl_div",
    [ELEMENT_KL_DIV_LOG] = "kl_div_log",
};

static bool find_kind(const struct node *node, enum cuda_element_kind *kind) {
  const char *name = node_attr_string(node, "kind", "");
  for (size_t k = 0; k < sizeof kind_names / sizeof *kind_names; k++)
    if (strcmp(kind_names[k], name) == 0) {
      *kind = (enum cuda_element_kind)k;
      return true;
    }
  return false;
}

static int enqueue_loss(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct element_step *own = step->details;
  struct cuda_element_loss loss = own->loss;
  struct cuda_loss_sums sums = {.parts = loss.blocks, .out = {cuda_arg_tensor(step, own->out)}};
  (void)program;
  loss.x = cuda_arg_tensor(step, own->x);
  loss.target = cuda_arg_tensor(step, own->target);
  loss.weights = cuda_arg_tensor(step, own->weights).data;
  loss.dsum = cuda_arg_tensor(step, own->dsum).data;
  loss.gradient = cuda_arg_tensor(step, own->gradient);
  loss.sums = cuda_arg_tensor(step, own->sums).data;
  cuda_element_loss_launch(&loss, stream);
  if (own->out >= 0) {
    sums.sums = loss.sums;
    cuda_loss_sums_launch(&sums, stream);
  }
  return cuda_check(step->node, cudaGetLastError(), "compute an element's loss", err);
}

/* What x (input `first`), target and weights are, after the attributes. */
static bool init_step(struct element_step *own, const struct backend_program *program,
                      const struct node *node, int first) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct shape *x = &node_input(graph, node, first)->shape;
  const struct value *weights = node_input(graph, node, first + 2);
  struct cuda_element_loss *loss = &own->loss;
  int64_t inner = 1;
  *own = (struct element_step){.weights = -1, .dsum = -1, .gradient = -1, .sums = -1, .out = -1};
  loss->elems = shape_elems(x);
  if (!find_kind(node, &loss->kind) || loss->elems > INT32_MAX)
    return false;
  for (int d = (int)node_attr_int(node, "axis", 0) + 1; d < x->rank; d++)
    inner *= x->dim[d];
  loss->by_inner = cuda_divisor_of(inner);
  loss->by_weights = cuda_divisor_of(weights ? shape_elems(&weights->shape) : 1);
  loss->parameter = node_attr_float(node, "parameter", 0);
  loss->blocks = (loss->elems + ROWS_BLOCK - 1) / ROWS_BLOCK;
  loss->blocks = loss->blocks < CLASS_BLOCKS_MAX ? loss->blocks : CLASS_BLOCKS_MAX;
  return true;
}

static void read_inputs(struct backend_program *program, struct cuda_step *step, struct element_step *own,
                        int first) {
  const int *inputs = step->node->inputs + first;
  own->x = cuda_read(program, step, inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own->target = cuda_read(program, step, inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  if (node_input(cuda_view(program)->graph, step->node, first + 2))
    own->weights = cuda_read(program, step, inputs[2], CUDA_F32, CUDA_DENSE);
}

static bool end_step(struct backend_program *program, struct cuda_step *step, struct element_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_loss;
  cuda_step_end(program, step);
  return true;
}

/* X, target, weights -> loss_sum */
static bool prepare_loss(struct backend_program *program, const struct node *node) {
  struct element_step own;
  struct cuda_step *step;
  if (!init_step(&own, program, node, 0))
    return false;
  step = cuda_step_new(program, node);
  read_inputs(program, step, &own, 0);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_F32, CUDA_DENSE);
  own.sums = cuda_scratch(program, step, (size_t)own.loss.blocks * CLASS_SUMS * sizeof(double));
  return end_step(program, step, &own);
}

/* dsum, X, target, weights -> dX */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct element_step own;
  struct cuda_step *step;
  if (!init_step(&own, program, node, 1))
    return false;
  step = cuda_step_new(program, node);
  read_inputs(program, step, &own, 1);
  own.dsum = cuda_read(program, step, node->inputs[0], CUDA_F32, CUDA_DENSE);
  own.gradient = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  return end_step(program, step, &own);
}

const struct cuda_kernel cuda_kernel_element_loss = {.op = "ElementLoss", .prepare = prepare_loss};
const struct cuda_kernel cuda_kernel_element_loss_grad = {.op = "ElementLossGrad", .prepare = prepare_grad};

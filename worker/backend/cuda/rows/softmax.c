/* Softmax, LogSoftmax, LpNormalization and their gradients: rows along an axis, read once and written once.
 */
#include "model/ops/softmax.h"

#include "model/ops/shared/lp.h"
#include "worker/backend/cuda/rows/row_wise.h"

/* Inputs of one shape -> an output of it. */
static bool prepare_rows(struct backend_program *program, const struct node *node, struct cuda_row_step *own,
                         const struct softmax_rows *rows) {
  struct cuda_step *step;
  if (!cuda_rows_init(&own->row_wise.rows, 1, rows->outer, rows->n, rows->inner))
    return false;
  step = cuda_step_new(program, node);
  own->a = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  if (node->n_inputs > 1)
    own->b = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  own->out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_row_step_end(program, step, own);
  return true;
}

static bool prepare_kind(struct backend_program *program, const struct node *node,
                         enum cuda_row_wise_kind kind) {
  struct cuda_row_step own = cuda_row_step_of(kind);
  const struct graph *graph = cuda_view(program)->graph;
  struct softmax_rows rows;
  struct err err = ERR_NONE;
  return !softmax_rows_init(&rows, graph, node, &node_input(graph, node, 0)->shape, &err) &&
         prepare_rows(program, node, &own, &rows);
}

static bool prepare_softmax(struct backend_program *program, const struct node *node) {
  return prepare_kind(program, node, ROW_SOFTMAX);
}

static bool prepare_softmax_grad(struct backend_program *program, const struct node *node) {
  return prepare_kind(program, node, ROW_SOFTMAX_GRAD);
}

static bool prepare_log_softmax(struct backend_program *program, const struct node *node) {
  return prepare_kind(program, node, ROW_LOG_SOFTMAX);
}

static bool prepare_log_softmax_grad(struct backend_program *program, const struct node *node) {
  return prepare_kind(program, node, ROW_LOG_SOFTMAX_GRAD);
}

static bool prepare_lp_kind(struct backend_program *program, const struct node *node,
                            enum cuda_row_wise_kind kind) {
  struct cuda_row_step own = cuda_row_step_of(kind);
  const struct shape *x = &node_input(cuda_view(program)->graph, node, 0)->shape;
  struct softmax_rows rows = {.outer = 1, .inner = 1};
  struct err err = ERR_NONE;
  int axis;
  if (lp_order(node, &own.row_wise.power, &err) ||
      infer_axis(node, node_attr_int(node, "axis", -1), x->rank, &axis, &err))
    return false;
  for (int d = 0; d < x->rank; d++)
    if (d != axis)
      *(d < axis ? &rows.outer : &rows.inner) *= x->dim[d];
  rows.n = x->dim[axis];
  return prepare_rows(program, node, &own, &rows);
}

static bool prepare_lp(struct backend_program *program, const struct node *node) {
  return prepare_lp_kind(program, node, ROW_LP);
}

static bool prepare_lp_grad(struct backend_program *program, const struct node *node) {
  return prepare_lp_kind(program, node, ROW_LP_GRAD);
}

const struct cuda_kernel cuda_kernel_log_softmax = {.op = "LogSoftmax", .prepare = prepare_log_softmax};
const struct cuda_kernel cuda_kernel_log_softmax_grad = {.op = "LogSoftmaxGrad",
                                                         .prepare = prepare_log_softmax_grad};
const struct cuda_kernel cuda_kernel_lp_normalization = {.op = "LpNormalization", .prepare = prepare_lp};
const struct cuda_kernel cuda_kernel_lp_normalization_grad = {.op = "LpNormalizationGrad",
                                                              .prepare = prepare_lp_grad};
const struct cuda_kernel cuda_kernel_softmax = {.op = "Softmax", .prepare = prepare_softmax};
const struct cuda_kernel cuda_kernel_softmax_grad = {.op = "SoftmaxGrad", .prepare = prepare_softmax_grad};

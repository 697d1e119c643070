/* Softmax and LogSoftmax, and their gradients from the output. */
#include "model/ops/softmax.h"
#include "worker/backend/cpu/cpu.h"

enum { AXIS = 1 };

/* [outer, n, inner], where each of outer x inner rows of n is one softmax. */
static bool rows_layout(const struct backend_program *program, const struct node *node,
                        dnnl_memory_desc_t *layout) {
  struct softmax_rows rows;
  struct err err = ERR_NONE;
  if (softmax_rows_init(&rows, program->graph, node, &node_input(program->graph, node, 0)->shape, &err))
    return false;
  *layout = layout_dense(rows.inner > 1 ? 3 : 2, (const int64_t[]){rows.outer, rows.n, rows.inner});
  return true;
}

static dnnl_primitive_desc_t forward_describe(struct backend_program *program, dnnl_alg_kind_t kind,
                                              const dnnl_memory_desc_t *layout) {
  dnnl_softmax_v2_desc_t softmax;
  if (dnnl_softmax_v2_forward_desc_init(&softmax, dnnl_forward_training, kind, layout, layout, AXIS))
    return NULL;
  return cpu_describe(program, &softmax, NULL, NULL);
}

/* X -> Y */
static bool prepare_forward(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind) {
  dnnl_memory_desc_t layout;
  dnnl_primitive_desc_t desc =
      rows_layout(program, node, &layout) ? forward_describe(program, kind, &layout) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  return true;
}

/* dY, Y -> dX */
static bool prepare_backward(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind) {
  dnnl_memory_desc_t layout;
  dnnl_softmax_v2_desc_t softmax;
  if (!rows_layout(program, node, &layout) ||
      dnnl_softmax_v2_backward_desc_init(&softmax, kind, &layout, &layout, &layout, AXIS))
    return false;
  dnnl_primitive_desc_t hint = forward_describe(program, kind, &layout);
  dnnl_primitive_desc_t desc = hint ? cpu_describe(program, &softmax, NULL, hint) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_DST, node->inputs[1], &layout);
  cpu_write(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  return true;
}

static bool prepare_softmax(struct backend_program *program, const struct node *node) {
  return prepare_forward(program, node, dnnl_softmax_accurate);
}

static bool prepare_log_softmax(struct backend_program *program, const struct node *node) {
  return prepare_forward(program, node, dnnl_softmax_log);
}

static bool prepare_softmax_grad(struct backend_program *program, const struct node *node) {
  return prepare_backward(program, node, dnnl_softmax_accurate);
}

static bool prepare_log_softmax_grad(struct backend_program *program, const struct node *node) {
  return prepare_backward(program, node, dnnl_softmax_log);
}

const struct cpu_kernel cpu_softmax = {"Softmax", prepare_softmax};
const struct cpu_kernel cpu_softmax_grad = {"SoftmaxGrad", prepare_softmax_grad};
const struct cpu_kernel cpu_log_softmax = {"LogSoftmax", prepare_log_softmax};
const struct cpu_kernel cpu_log_softmax_grad = {"LogSoftmaxGrad", prepare_log_softmax_grad};

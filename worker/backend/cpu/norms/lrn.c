/* Local response normalization across channels, in the layout of its input. */
#include "worker/backend/cpu/cpu.h"

static bool lrn_layout(struct backend_program *program, const struct node *node, int x,
                       dnnl_memory_desc_t *layout) {
  const struct shape *shape = &program->graph->values[x].shape;
  int64_t size = node_attr_int(node, "size", 0);
  /* oneDNN's region is as large on both sides, and it crashes where that is one channel. */
  if (shape->rank != 4 || size % 2 == 0 || size < 3)
    return false;
  *layout = cpu_layout_as(program, x, shape->rank, shape->dim);
  return true;
}

static dnnl_primitive_desc_t forward_describe(struct backend_program *program, const struct node *node,
                                              const dnnl_memory_desc_t *layout) {
  dnnl_lrn_desc_t lrn;
  if (dnnl_lrn_forward_desc_init(&lrn, dnnl_forward_training, dnnl_lrn_across_channels, layout,
                                 node_attr_int(node, "size", 0), node_attr_float(node, "alpha", 1e-4f),
                                 node_attr_float(node, "beta", 0.75f), node_attr_float(node, "bias", 1.0f)))
    return NULL;
  return cpu_describe(program, &lrn, NULL, NULL);
}

/* LRN: X -> Y, and a workspace for the gradient */
static bool prepare_lrn(struct backend_program *program, const struct node *node) {
  struct cpu_node *known = &program->nodes[node->index];
  dnnl_memory_desc_t layout;
  dnnl_primitive_desc_t desc =
      lrn_layout(program, node, node->inputs[0], &layout) ? forward_describe(program, node, &layout) : NULL;
  if (!desc)
    return false;
  const dnnl_memory_desc_t *workspace = dnnl_primitive_desc_query_md(desc, dnnl_query_workspace_md, 0);
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], &layout);
  if (workspace && dnnl_memory_desc_get_size(workspace) > 0)
    known->workspace = cpu_write(program, step, DNNL_ARG_WORKSPACE, -1, workspace);
  known->forward = desc;
  cpu_step_end(program, step, desc);
  return true;
}

/* LRNGrad: dY, X -> dX */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  const struct cpu_node *forward = node->forward >= 0 ? &program->nodes[node->forward] : NULL;
  dnnl_lrn_desc_t lrn;
  if (!forward || !forward->forward)
    return false;
  dnnl_memory_desc_t layout = *cpu_query(forward->forward, dnnl_query_src_md, 0);
  if (dnnl_lrn_backward_desc_init(&lrn, dnnl_lrn_across_channels, &layout, &layout,
                                  node_attr_int(node, "size", 0), node_attr_float(node, "alpha", 1e-4f),
                                  node_attr_float(node, "beta", 0.75f), node_attr_float(node, "bias", 1.0f)))
    return false;
  dnnl_primitive_desc_t desc = cpu_describe(program, &lrn, NULL, forward->forward);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[1], &layout);
  if (forward->workspace >= 0)
    cpu_use(program, step, DNNL_ARG_WORKSPACE, forward->workspace, NULL);
  cpu_write(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_lrn = {"LRN", prepare_lrn};
const struct cpu_kernel cpu_lrn_grad = {"LRNGrad", prepare_grad};

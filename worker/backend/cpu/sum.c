/* Sums of several tensors. */
#include "worker/backend/cpu/cpu.h"

/* NULL where oneDNN has none, or nothing but its reference loops for bf16. Released by the caller. */
static dnnl_primitive_desc_t sum_describe(struct backend_program *program, int n,
                                          const dnnl_memory_desc_t *layout) {
  dnnl_memory_desc_t layouts[OP_INPUTS_MAX];
  float scales[OP_INPUTS_MAX];
  dnnl_primitive_desc_t desc = NULL;
  for (int i = 0; i < n; i++) {
    layouts[i] = *layout;
    scales[i] = 1;
  }
  if (dnnl_sum_primitive_desc_create(&desc, layout, n, scales, layouts, program->attr, program->engine))
    return NULL;
  if (layout->data_type == dnnl_f32 || cpu_rank(desc) != CPU_RANK_REFERENCE)
    return desc;
  dnnl_primitive_desc_destroy(desc);
  return NULL;
}

/* Sum: X1, ..., Xn -> Y, all of one shape */
static bool prepare_sum(struct backend_program *program, const struct node *node) {
  const struct graph *graph = program->graph;
  dnnl_memory_desc_t layout = cpu_layout(program, node->inputs[0]);
  dnnl_primitive_desc_t desc = NULL;
  if (node->n_inputs < 2)
    return false;
  for (int i = 0; i < node->n_inputs; i++)
    if (!shape_is_same(&node_input(graph, node, i)->shape, &node_input(graph, node, 0)->shape))
      return false;
  if (cpu_type(program, node->outputs[0]) == dnnl_bf16) {
    layout.data_type = dnnl_bf16;
    desc = sum_describe(program, node->n_inputs, &layout);
  }
  if (!desc) {
    layout.data_type = dnnl_f32;
    desc = sum_describe(program, node->n_inputs, &layout);
  }
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  for (int i = 0; i < node->n_inputs; i++)
    cpu_read(program, step, DNNL_ARG_MULTIPLE_SRC + i, node->inputs[i], &layout);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  dnnl_primitive_desc_destroy(desc);
  return true;
}

const struct cpu_kernel cpu_sum = {"Sum", prepare_sum};

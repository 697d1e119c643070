/* Transpose as a oneDNN reorder: the input seen with its strides permuted, copied to a dense output. */
#include "worker/backend/cpu/cpu.h"

static bool prepare_transpose(struct backend_program *program, const struct node *node) {
  const struct shape *in = &node_input(program->graph, node, 0)->shape;
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  const struct attr *perm = node_attr(node, "perm");
  int order[RANK_MAX];
  dnnl_primitive_desc_t desc = NULL;
  if (in->rank < 2)
    return false;
  for (int d = 0; d < in->rank; d++) /* axis -> where it goes */
    order[perm ? perm->ints[d] : in->rank - 1 - d] = d;
  dnnl_memory_desc_t from = layout_typed(layout_of_shape(in), cpu_produced_type(program, node->inputs[0]));
  dnnl_memory_desc_t to = layout_typed(layout_of_shape(out), cpu_type(program, node->outputs[0])), seen;
  if (dnnl_memory_desc_permute_axes(&seen, &from, order) ||
      dnnl_reorder_primitive_desc_create(&desc, &seen, program->engine, &to, program->engine, program->attr))
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_use(program, step, DNNL_ARG_FROM, cpu_buffer_in(program, node, node->inputs[0], &from), &seen);
  cpu_write(program, step, DNNL_ARG_TO, node->outputs[0], &to);
  cpu_step_end(program, step, desc);
  dnnl_primitive_desc_destroy(desc);
  return true;
}

const struct cpu_kernel cpu_transpose = {"Transpose", prepare_transpose};

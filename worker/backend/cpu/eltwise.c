/* Element-wise functions of one tensor and their gradients, in whatever layout the tensor has. */
#include "worker/backend/cpu/cpu.h"

/* Relu: X -> Y */
static bool prepare_relu(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout = *cpu_layout(program, node->inputs[0]);
  dnnl_eltwise_desc_t eltwise;
  if (dnnl_eltwise_forward_desc_init(&eltwise, dnnl_forward_training, dnnl_eltwise_relu, &layout, 0, 0))
    return false;
  dnnl_primitive_desc_t desc = cpu_describe(program, &eltwise, NULL, NULL);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int x = cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_write_over(program, step, DNNL_ARG_DST, node->outputs[0], &layout, x);
  cpu_step_end(program, step, desc);
  return true;
}

/* ReluGrad: dY, Y -> dX */
static bool prepare_relu_grad(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout = *cpu_layout(program, node->inputs[1]);
  dnnl_eltwise_desc_t forward, backward;
  dnnl_primitive_desc_t hint, desc;
  if (dnnl_eltwise_forward_desc_init(&forward, dnnl_forward_training, dnnl_eltwise_relu_use_dst_for_bwd,
                                     &layout, 0, 0) ||
      dnnl_eltwise_backward_desc_init(&backward, dnnl_eltwise_relu_use_dst_for_bwd, &layout, &layout, 0, 0))
    return false;
  hint = cpu_describe(program, &forward, NULL, NULL);
  desc = hint ? cpu_describe(program, &backward, NULL, hint) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int dy = cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_DST, node->inputs[1], &layout);
  cpu_write_over(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], &layout, dy);
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_relu = {"Relu", prepare_relu};
const struct cpu_kernel cpu_relu_grad = {"ReluGrad", prepare_relu_grad};

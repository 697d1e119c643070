/* Nodes that no kernel takes: the op's reference kernel on dense tensors. */
#include "worker/backend/cpu/cpu.h"

static int run_reference(struct backend_program *program, struct cpu_step *step,
                         const struct backend_run *run, struct err *err) {
  (void)program;
  struct op_call *call = step->details;
  const struct node *node = step->node;
  const struct cpu_arg *arg = step->args;
  call->context = run->context;
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      call->in[i].data = (arg++)->data;
  for (int i = 0; i < node->n_outputs; i++)
    if (node->outputs[i] >= 0)
      call->out[i].data = (arg++)->data;
  return node->op->ref(call, err);
}

/* Output 0 may be written over input 0, unless another input lies in the same bytes. */
static bool can_run_in_place(const struct backend_program *program, const struct node *node,
                             const struct cpu_step *step) {
  const struct value *in = node_input(program->graph, node, 0), *out = node_output(program->graph, node, 0);
  if (!(node->op->flags & OP_INPLACE) || !in || !out || in->dtype != out->dtype ||
      !shape_is_same(&in->shape, &out->shape))
    return false;
  for (int a = 1; a < step->n_args; a++)
    if (program->buffers[step->args[a].buffer].root == program->buffers[step->args[0].buffer].root)
      return false;
  return true;
}

void cpu_reference(struct backend_program *program, const struct node *node) {
  struct op_call *call = arena_new(&program->memory, sizeof *call);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_reference;
  step->details = call;
  op_call_init(call, &program->memory, program->graph, node);
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      cpu_read(program, step, 0, node->inputs[i], NULL);
  bool is_in_place = can_run_in_place(program, node, step);
  for (int i = 0; i < node->n_outputs; i++) {
    if (node->outputs[i] < 0)
      continue;
    if (i == 0 && is_in_place)
      cpu_write_over(program, step, 0, node->outputs[i], NULL, step->args[0].buffer);
    else
      cpu_write(program, step, 0, node->outputs[i], NULL);
  }
  cpu_step_end(program, step, NULL);
}

/* Kernels of plain tensors: the op's reference kernel for nodes that no other takes. Tensors are dense, but
   for ops that do not care in which order the elements lie. */
#include "worker/backend/cpu/cpu.h"

struct call {
  int (*kernel)(const struct op_call *call, struct err *err);
  struct op_call tensors;
};

static int run_call(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  (void)program;
  struct call *call = step->details;
  struct op_call *tensors = &call->tensors;
  const struct node *node = step->node;
  const struct cpu_arg *arg = step->args;
  tensors->context = run->context;
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      tensors->in[i].data = (arg++)->data;
  for (int i = 0; i < node->n_outputs; i++)
    if (node->outputs[i] >= 0)
      tensors->out[i].data = (arg++)->data;
  return call->kernel(tensors, err);
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

/* Of a pointwise node: tensors of the output's shape may lie in any one layout; others have one element. */
static bool is_whole(const struct op_call *tensors, int input) {
  return shape_is_same(&tensors->in[input].shape, &tensors->out[0].shape);
}

/* True if the kernel makes 0 of zeros, as the padding of a layout must be: tried. */
static bool keeps_zeros(const struct backend_program *program, const struct call *call) {
  const struct op_call *tensors = &call->tensors;
  const struct node *node = tensors->node;
  const struct value *values = program->graph->values;
  struct tensor in[OP_OPTIONAL_MAX] = {0}, out = {.dtype = DTYPE_F32};
  struct op_call trial = {.graph = tensors->graph, .node = node, .in = in, .out = &out};
  struct err err = ERR_NONE;
  float zero = 0.0f, result = 1.0f;
  if (node->op->max_inputs > OP_OPTIONAL_MAX)
    return false;
  out.data = &result;
  for (int i = 0; i < node->n_inputs; i++) {
    if (node->inputs[i] < 0)
      continue;
    in[i].dtype = tensors->in[i].dtype;
    in[i].data = is_whole(tensors, i) ? &zero : (void *)values[node->inputs[i]].data;
    if (!in[i].data || values[node->inputs[i]].kind == VALUE_INITIALIZER)
      return false;
  }
  return call->kernel(&trial, &err) == ERR_OK && result == 0.0f;
}

/* The layout in which all tensors of a pointwise node can be taken: a blocked one that an input was produced
   in, so that large tensors need no reorder. False: dense. */
static bool common_layout(struct backend_program *program, const struct call *call,
                          dnnl_memory_desc_t *layout) {
  const struct op_call *tensors = &call->tensors;
  const struct node *node = tensors->node;
  bool is_found = false;
  if (!(node->op->flags & OP_POINTWISE) || tensors->out[0].dtype != DTYPE_F32)
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (node->inputs[i] < 0 || (!is_whole(tensors, i) && shape_elems(&tensors->in[i].shape) == 1))
      continue;
    if (tensors->in[i].dtype != DTYPE_F32 || !is_whole(tensors, i))
      return false;
    const dnnl_memory_desc_t *produced = cpu_layout(program, node->inputs[i]);
    if (is_found || produced->ndims == 0 || layout_is_dense(produced))
      continue;
    *layout = *produced;
    is_found = true;
  }
  int64_t elems = shape_elems(&tensors->out[0].shape);
  return is_found &&
         (dnnl_memory_desc_get_size(layout) == (size_t)elems * sizeof(float) || keeps_zeros(program, call));
}

/* The kernel sees all elements of such a layout in a row, padding included. */
static void tensors_flatten(struct op_call *tensors, const dnnl_memory_desc_t *layout) {
  struct shape flat = {1, {(int64_t)(dnnl_memory_desc_get_size(layout) / sizeof(float))}};
  for (int i = 0; i < tensors->node->n_inputs; i++)
    if (is_whole(tensors, i))
      tensors->in[i].shape = flat;
  tensors->out[0].shape = flat;
}

void cpu_call(struct backend_program *program, const struct node *node,
              int (*kernel)(const struct op_call *call, struct err *err)) {
  struct call *call = arena_new(&program->memory, sizeof *call);
  struct cpu_step *step = cpu_step_new(program, node);
  dnnl_memory_desc_t common;
  call->kernel = kernel;
  step->run = run_call;
  step->details = call;
  op_call_init(&call->tensors, &program->memory, program->graph, node);
  const dnnl_memory_desc_t *layout = common_layout(program, call, &common) ? &common : NULL;
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      cpu_read(program, step, 0, node->inputs[i], layout && is_whole(&call->tensors, i) ? layout : NULL);
  bool is_in_place = can_run_in_place(program, node, step);
  for (int i = 0; i < node->n_outputs; i++) {
    if (node->outputs[i] < 0)
      continue;
    if (i == 0 && is_in_place)
      cpu_write_over(program, step, 0, layout, step->args[0].buffer);
    else
      cpu_write(program, step, 0, node->outputs[i], layout);
  }
  if (layout)
    tensors_flatten(&call->tensors, layout);
  cpu_step_end(program, step, NULL);
}

void cpu_reference(struct backend_program *program, const struct node *node) {
  cpu_call(program, node, node->op->ref);
}

/* Kernels of plain tensors: the op's reference kernel for nodes that no other takes. Tensors are dense, but
   for ops that do not care in which order the elements lie. Kernels know f32 alone: where such an op's
   tensors are bf16, its kernel sees a chunk at a time. */
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/reals.h"

enum { CHUNK = 2048 }; /* elements: all of a node's stay in the cache */

struct call {
  int (*kernel)(const struct op_call *call, struct err *err);
  struct op_call tensors;
  int64_t chunked; /* elements of the whole tensors that are seen in chunks; 0: they are seen at once */
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

/* Of a pointwise node: tensors of the output's shape may lie in any one layout; others have one element. */
static bool is_whole(const struct op_call *tensors, int input) {
  return shape_is_same(&tensors->in[input].shape, &tensors->out[0].shape);
}

/* Elements [at, at + n) of an argument, in scratch where they are bf16. */
static float *chunk_open(const struct cpu_arg *arg, int64_t at, int64_t n, float *scratch) {
  if (arg->layout.data_type == dnnl_f32)
    return (float *)arg->data + at;
  reals_widen(arg->data, at, n, scratch);
  return scratch;
}

static int run_chunks(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  const struct call *call = step->details;
  const struct node *node = step->node;
  const struct cpu_arg *out = &step->args[step->n_args - 2];
  float *result = step->args[step->n_args - 1].data;
  struct tensor in[OP_OPTIONAL_MAX] = {0}, output = call->tensors.out[0];
  struct op_call chunk = {.graph = program->graph, .node = node, .in = in, .out = &output};
  chunk.context = run->context;
  output.data = result;
  for (int64_t at = 0; at < call->chunked; at += CHUNK) {
    int64_t n = call->chunked - at < CHUNK ? call->chunked - at : CHUNK;
    const struct cpu_arg *arg = step->args;
    float *scratch = result;
    for (int i = 0; i < node->n_inputs; i++) {
      in[i] = call->tensors.in[i];
      if (node->inputs[i] < 0)
        continue;
      bool is_of_whole = is_whole(&call->tensors, i);
      in[i].data = is_of_whole ? chunk_open(arg, at, n, scratch += CHUNK) : arg->data;
      if (is_of_whole)
        in[i].shape.dim[0] = n;
      arg++;
    }
    output.shape.dim[0] = n;
    if (call->kernel(&chunk, err))
      return err->code;
    reals_narrow(result, n, 1, out->data, at);
  }
  return ERR_OK;
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
    dnnl_memory_desc_t produced = cpu_layout(program, node->inputs[i]);
    if (is_found || produced.ndims == 0 || layout_is_dense(&produced))
      continue;
    *layout = produced;
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

/* Whether the kernel is to see chunks of bf16 tensors. */
static bool suits_chunks(struct backend_program *program, const struct call *call) {
  const struct op_call *tensors = &call->tensors;
  const struct node *node = tensors->node;
  bool is_some_bf16 = false;
  if (!(node->op->flags & OP_POINTWISE) || node->n_inputs > OP_OPTIONAL_MAX ||
      cpu_type(program, node->outputs[0]) != dnnl_bf16)
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (node->inputs[i] < 0 || (!is_whole(tensors, i) && shape_elems(&tensors->in[i].shape) == 1))
      continue;
    if (tensors->in[i].dtype != DTYPE_F32 || !is_whole(tensors, i))
      return false;
    is_some_bf16 |= cpu_produced_type(program, node->inputs[i]) == dnnl_bf16;
  }
  return is_some_bf16;
}

/* layout: of all whole tensors; NULL: dense. */
static void call_in_chunks(struct backend_program *program, struct cpu_step *step,
                           const dnnl_memory_desc_t *layout) {
  struct call *call = step->details;
  const struct node *node = step->node;
  dnnl_memory_desc_t whole = layout ? *layout : layout_of_shape(&call->tensors.out[0].shape);
  for (int i = 0; i < node->n_inputs; i++) {
    if (node->inputs[i] < 0)
      continue;
    dnnl_memory_desc_t typed = layout_typed(whole, cpu_produced_type(program, node->inputs[i]));
    cpu_read(program, step, 0, node->inputs[i], is_whole(&call->tensors, i) ? &typed : NULL);
  }
  dnnl_memory_desc_t out = layout_typed(whole, dnnl_bf16);
  call->chunked = (int64_t)(dnnl_memory_desc_get_size(&out) / sizeof(uint16_t));
  step->run = run_chunks;
  if (can_run_in_place(program, node, step))
    cpu_write_over(program, step, 0, &out, step->args[0].buffer);
  else
    cpu_write(program, step, 0, node->outputs[0], &out);
  cpu_scratch(program, step, CHUNK * (1 + node->n_inputs), dnnl_f32);
  tensors_flatten(&call->tensors, &whole);
  cpu_step_end(program, step, NULL);
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
  if (suits_chunks(program, call)) {
    call_in_chunks(program, step, layout);
    return;
  }
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

/* Nodes that no kernel takes run on the host, by their op's reference kernel: their inputs are copied from
   the device and their outputs to it, and everything waits for that. */
#include <string.h>

#include "worker/backend/cuda/program.h"

enum { STAGING_ALIGN = 64 };

/* step->args: the inputs that nodes computed, then the outputs. */
struct host_call {
  struct op_call tensors;
};

static bool is_computed(const struct backend_program *program, int value) {
  return value >= 0 && program->graph->values[value].kind == VALUE_RESULT;
}

static size_t staging_of(const struct cuda_arg *arg) {
  size_t bytes = (size_t)arg->tensor.elems * cuda_type_size(arg->tensor.type);
  return (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

void cuda_reference(struct backend_program *program, const struct node *node) {
  const struct value *values = program->graph->values;
  struct host_call *call = arena_new(&program->memory, sizeof *call);
  struct cuda_step *step = cuda_step_new(program, node);
  size_t staging_bytes = 0;
  step->kind = CUDA_STEP_HOST;
  step->details = call;
  op_call_init(&call->tensors, &program->memory, program->graph, node);
  for (int i = 0; i < node->n_inputs; i++)
    if (is_computed(program, node->inputs[i]))
      cuda_read(program, step, node->inputs[i], cuda_type_of_dtype(values[node->inputs[i]].dtype),
                CUDA_DENSE);
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0)
      cuda_write(program, step, node->outputs[o], cuda_type_of_dtype(values[node->outputs[o]].dtype),
                 CUDA_DENSE);
  for (int a = 0; a < step->n_args; a++)
    staging_bytes += staging_of(&step->args[a]);
  if (staging_bytes > program->staging_bytes)
    program->staging_bytes = staging_bytes;
  cuda_step_end(program, step);
}

/* Where the host has an input that no node computed. */
static const void *given_data(const struct backend_program *program, const struct backend_run *run,
                              int value) {
  const struct graph *graph = program->graph;
  if (graph->values[value].kind == VALUE_INPUT)
    for (int i = 0; i < graph->n_inputs; i++)
      if (graph->inputs[i] == value)
        return run->inputs[i];
  return run->weights && run->weights[value] ? (const void *)run->weights[value] : graph->values[value].data;
}

static int copy(const struct node *node, void *to, const void *from, const struct cuda_arg *arg,
                enum cudaMemcpyKind kind, cudaStream_t stream, struct err *err) {
  size_t bytes = (size_t)arg->tensor.elems * cuda_type_size(arg->tensor.type);
  if (bytes == 0)
    return ERR_OK;
  return cuda_check(node, cudaMemcpyAsync(to, from, bytes, kind, stream), "copy a tensor", err);
}

/* Points the call at its bytes, and copies those of inputs there. */
static int call_begin(struct backend_program *program, const struct cuda_step *step,
                      const struct backend_run *run, struct err *err) {
  const struct node *node = step->node;
  struct op_call *tensors = &((struct host_call *)step->details)->tensors;
  const struct cuda_arg *arg = step->args;
  char *at = program->staging;
  tensors->context = run->context;
  for (int i = 0; i < node->n_inputs; i++) {
    if (node->inputs[i] < 0)
      continue;
    if (!is_computed(program, node->inputs[i])) {
      tensors->in[i].data = (void *)given_data(program, run, node->inputs[i]);
      continue;
    }
    tensors->in[i].data = at;
    if (copy(node, at, arg->tensor.data, arg, cudaMemcpyDeviceToHost, program->compute, err))
      return err->code;
    at += staging_of(arg++);
  }
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0) {
      tensors->out[o].data = at;
      at += staging_of(arg++);
    }
  return cuda_check(node, cudaStreamSynchronize(program->compute), "wait for its inputs", err);
}

int cuda_host_run(struct backend_program *program, const struct cuda_step *step,
                  const struct backend_run *run, struct err *err) {
  const struct node *node = step->node;
  const struct op_call *tensors = &((struct host_call *)step->details)->tensors;
  const struct cuda_arg *arg = step->args;
  if (call_begin(program, step, run, err) || node->op->ref(tensors, err))
    return err->code;
  for (int i = 0; i < node->n_inputs; i++)
    arg += is_computed(program, node->inputs[i]);
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0) {
      if (copy(node, arg->tensor.data, tensors->out[o].data, arg, cudaMemcpyHostToDevice, program->compute,
               err))
        return err->code;
      arg++;
    }
  return cuda_check(node, cudaStreamSynchronize(program->compute), "wait for its outputs", err);
}

/* Nodes that no kernel takes run on the host, by their op's reference kernel: their inputs are copied from
   the device, weights too where they are there, and their outputs to it, and everything waits for that. */

#include "worker/backend/cuda/engine/program.h"

enum { STAGING_ALIGN = 64 };

/* step->args: the inputs that nodes computed, then the outputs. */
struct host_call {
  struct op_call tensors;
};

static bool is_computed(const struct backend_program *program, int value) {
  return value >= 0 && program->graph->values[value].kind == VALUE_RESULT;
}

static size_t staging_bytes_of(size_t size_bytes) {
  return (size_bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

static size_t staging_of(const struct cuda_arg *arg) {
  return staging_bytes_of((size_t)arg->tensor.elems * cuda_type_size(arg->tensor.type));
}

static size_t value_bytes(const struct backend_program *program, int value) {
  const struct value *v = &program->graph->values[value];
  return (size_t)shape_elems(&v->shape) * dtype_size(v->dtype);
}

/* It may be given in the memory of a device. */
static bool is_weight(const struct backend_program *program, int value) {
  return value >= 0 && program->graph->values[value].kind == VALUE_INITIALIZER;
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
    else if (is_weight(program, node->inputs[i]))
      staging_bytes += staging_bytes_of(value_bytes(program, node->inputs[i]));
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

static bool is_on_device(const void *data) {
  struct cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, data) == cudaSuccess)
    return attributes.type == cudaMemoryTypeDevice;
  cudaGetLastError(); /* it is looked at after a launch */
  return false;
}

/* Bytes on their way between the host and the device. */
struct transfer {
  void *to;
  const void *from;
  size_t size_bytes;
};

static int bytes_copy(struct backend_program *program, const struct node *node, struct transfer transfer,
                      struct err *err) {
  if (transfer.size_bytes == 0)
    return ERR_OK;
  return cuda_check(
      node,
      cudaMemcpyAsync(transfer.to, transfer.from, transfer.size_bytes, cudaMemcpyDefault, program->compute),
      "copy a tensor", err);
}

static size_t arg_bytes(const struct cuda_arg *arg) {
  return (size_t)arg->tensor.elems * cuda_type_size(arg->tensor.type);
}

/* Brings input i, which no node computed, from a device to the staging, where it is on one; *at: where the
   staging goes on. */
static int given_stage(struct backend_program *program, const struct cuda_step *step, int i, char **at,
                       struct err *err) {
  struct op_call *tensors = &((struct host_call *)step->details)->tensors;
  int value = step->node->inputs[i];
  struct transfer transfer = {
      .to = *at, .from = tensors->in[i].data, .size_bytes = value_bytes(program, value)};
  if (!is_weight(program, value) || !is_on_device(transfer.from))
    return ERR_OK;
  tensors->in[i].data = transfer.to;
  *at += staging_bytes_of(transfer.size_bytes);
  return bytes_copy(program, step->node, transfer, err);
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
      if (given_stage(program, step, i, &at, err))
        return err->code;
      continue;
    }
    tensors->in[i].data = at;
    struct transfer transfer = {.to = at, .from = arg->tensor.data, .size_bytes = arg_bytes(arg)};
    if (bytes_copy(program, node, transfer, err))
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
      struct transfer transfer = {
          .to = arg->tensor.data, .from = tensors->out[o].data, .size_bytes = arg_bytes(arg)};
      if (bytes_copy(program, node, transfer, err))
        return err->code;
      arg++;
    }
  return cuda_check(node, cudaStreamSynchronize(program->compute), "wait for its outputs", err);
}

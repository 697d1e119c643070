/* The cuda backend: our kernels, cuDNN and cuBLASLt on one GPU, reference kernels on the host for the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/backend/cuda/attention/attention_plans.h"
#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/rows/norm_fusion.h"
#include "worker/backend/node.h"

#define KERNEL(symbol) extern const struct cuda_kernel cuda_kernel_##symbol;
#include "worker/backend/cuda/kernel.def"
#undef KERNEL

static const struct cuda_kernel *const kernels[] = {
#define KERNEL(symbol) &cuda_kernel_##symbol,
#include "worker/backend/cuda/kernel.def"
#undef KERNEL
    NULL};

bool cuda_is_chained(const struct node *node) {
  for (int k = 0; kernels[k]; k++)
    if (strcmp(kernels[k]->op, node->op->name) == 0)
      return kernels[k]->is_chained;
  return false;
}

/* Who reads what last. */
static int graph_survey(struct backend_program *program, struct err *err) {
  const struct graph *graph = program->graph;
  for (int v = 0; v < graph->n_values; v++)
    program->values[v] = (struct cuda_value){.buffer = -1, .last_node = -1};
  for (int w = 0; w < program->n_watched; w++)
    program->values[program->watched[w]].is_watched = true;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    program->nodes[n] = (struct cuda_node){.kept = -1, .done_by = -1};
    if (node_check(graph, node, err))
      return err->code;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        program->values[node->inputs[i]].last_node = n;
  }
  program->first_backward = 0;
  while (program->first_backward < graph->n_nodes && graph->nodes[program->first_backward]->forward < 0)
    program->first_backward++;
  cuda_values_survey(program);
  cuda_norm_grads_survey(program);
  return ERR_OK;
}

static bool kernel_prepare(struct backend_program *program, const struct node *node) {
  for (int k = 0; kernels[k]; k++) {
    int settings = kernels[k]->settings;
    if (strcmp(kernels[k]->op, node->op->name) != 0 ||
        !node_has_elements(program->graph, node, settings ? settings : node->n_inputs))
      continue;
    if (!kernels[k]->is_chained)
      cuda_chain_flush(program);
    if (kernels[k]->prepare(program, node))
      return true;
  }
  return false;
}

static void node_prepare(struct backend_program *program, const struct node *node) {
  if (program->nodes[node->index].done_by >= 0)
    return;
  if (node_is_alias(node)) {
    cuda_chain_flush(program);
    cuda_alias(program, node->outputs[0], node->inputs[0]);
  } else if (!kernel_prepare(program, node) && program->err.code == ERR_OK) {
    cuda_chain_flush(program);
    cuda_reference(program, node);
  }
}

/* A delivery for each time that the caller watches this value. */
static void value_deliver(struct backend_program *program, int value) {
  if (!program->values[value].is_watched)
    return;
  cuda_chain_flush(program);
  for (int w = 0; w < program->n_watched; w++)
    if (program->watched[w] == value)
      cuda_deliver(program, value, w);
}

/* The steps before the backward part. A chain that has nodes of both parts is of the backward one. */
static int count_forward(const struct backend_program *program) {
  int s = 0;
  while (s < program->n_steps &&
         (!program->steps[s]->node || program->steps[s]->node->index < program->first_backward))
    s++;
  return s;
}

static int nodes_prepare(struct backend_program *program, struct err *err) {
  const struct graph *graph = program->graph;
  for (int v = 0; v < graph->n_values; v++)
    if (graph->values[v].kind != VALUE_RESULT)
      value_deliver(program, v);
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    node_prepare(program, node);
    if (n + 1 == graph->n_nodes)
      cuda_chain_flush(program);
    for (int o = 0; o < node->n_outputs && program->err.code == ERR_OK; o++)
      if (node->outputs[o] >= 0)
        value_deliver(program, node->outputs[o]);
    if (program->err.code) {
      *err = program->err;
      return err->code;
    }
  }
  program->n_forward = count_forward(program);
  cuda_uses_find(program);
  return ERR_OK;
}

static int device_open(struct backend_program *program, struct err *err) {
  cudaStream_t *streams[] = {&program->compute, &program->up, &program->down};
  void *words = NULL;
  if (cuda_device_use(program->view.options.device, err))
    return err->code;
  for (int s = 0; s < 3; s++)
    if (cuda_check(NULL, cudaStreamCreateWithFlags(streams[s], cudaStreamNonBlocking), "make a stream", err))
      return err->code;
  if (cuda_memory_new(sizeof *program->words, "a program", &words, err) ||
      cuda_blas_check(NULL, cublasLtCreate(&program->view.blas), "start", err) ||
      cuda_dnn_check(NULL, cudnnCreate(&program->view.dnn), "start", err) ||
      cuda_dnn_check(NULL, cudnnSetStream(program->view.dnn, program->compute), "set its stream", err)) {
    cudaFree(words);
    return err->code;
  }
  program->words = words;
  program->view.context = &program->words->context;
  program->view.fault = &program->words->fault;
  return ERR_OK;
}

static const struct node *cuda_host_node(const struct backend_program *program, int index) {
  for (int s = 0; s < program->n_steps; s++)
    if (program->steps[s]->kind == CUDA_STEP_HOST && index-- == 0)
      return program->steps[s]->node;
  return NULL;
}

/* A step on the host is worth knowing of: the device waits for it. */
static void program_tell(const struct backend_program *program) {
  const struct node *node;
  int n_host = 0;
  for (; (node = cuda_host_node(program, n_host)); n_host++)
    log_event(LOG_DEBUG, "worker", "host_node", "node=\"%s\" op=%s", node->name, node->op->name);
  log_event(LOG_DEBUG, "worker", "program",
            "device=cuda:%d bytes=%zu unreplayed_bytes=%zu steps=%d replays=%d segments=%d host_nodes=%d",
            program->view.options.device, program->block_bytes, program->replayed.unreplayed_bytes,
            program->n_steps, program->replayed.n_replays, program->n_segments, n_host);
}

/* All steps of the whole graph, which have no memory yet. */
static int blueprint_make(struct backend_program *program, const struct backend_request *request,
                          struct err *err) {
  const struct graph *graph = request->graph;
  struct arena *memory = &program->memory;
  int n_watched = request->n_watched;
  program->graph = graph;
  program->n_contexts = request->options.n_contexts > 1 ? request->options.n_contexts : 1;
  arena_init(memory);
  program->view = (struct cuda_program_view){.graph = graph, .options = request->options, .memory = memory};
  if (program->view.options.precision == PRECISION_F32_FAST)
    program->view.options.precision = PRECISION_F32;
  program->values = arena_new(memory, ((size_t)graph->n_values + 1) * sizeof program->values[0]);
  program->nodes = arena_new(memory, ((size_t)graph->n_nodes + 1) * sizeof program->nodes[0]);
  program->watched = arena_copy(memory, request->watched, (size_t)n_watched * sizeof *program->watched);
  program->n_watched = n_watched;
  program->landings = arena_new(memory, ((size_t)n_watched + 1) * sizeof program->landings[0]);
  program->pieces = arena_new(memory, CUDA_PIECES_MAX * sizeof program->pieces[0]);
  program->in_flight = arena_new(memory, (size_t)program->n_contexts * sizeof *program->in_flight);
  if (backend_thread_init(err) || device_open(program, err) || graph_survey(program, err))
    return err->code;
  return nodes_prepare(program, err);
}

/* All steps of the program that is wanted, and when their bytes are in use: still without memory. */
static int steps_make(struct backend_program *program, const struct backend_request *request,
                      struct err *err) {
  if (blueprint_make(program, request, err) || cuda_carve(program, &request->options, err))
    return err->code;
  cuda_segments_cut(program);
  cuda_lives_settle(program);
  return cuda_replay_settle(program, err);
}

static void cuda_release(struct backend_program *program) {
  struct err ignored = ERR_NONE;
  cudaStream_t streams[3];
  if (!program)
    return;
  cuda_device_use(program->view.options.device, &ignored);
  for (int s = 0; s < program->n_steps; s++)
    cuda_step_release(program->steps[s]);
  for (int c = 0; c < program->n_conversions; c++)
    cuda_step_release(program->conversions[c].step);
  cuda_timeline_close(program);
  cuda_segments_close(program);
  attention_plans_free(program);
  cuda_memory_close(program);
  cudaFree(program->words);
  if (program->view.dnn)
    cudnnDestroy(program->view.dnn);
  if (program->view.blas)
    cublasLtDestroy(program->view.blas);
  streams[0] = program->compute;
  streams[1] = program->up;
  streams[2] = program->down;
  for (int s = 0; s < 3; s++)
    if (streams[s])
      cudaStreamDestroy(streams[s]);
  arena_fini(&program->memory);
  free(program->buffers);
  free(program->steps);
  free(program->conversions);
  free(program);
}

static int cuda_prepare(const struct backend_request *request, struct backend_program **out,
                        struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  *out = NULL;
  if (steps_make(program, request, err) || cuda_segments_open(program, err) ||
      cuda_memory_open(program, err)) {
    cuda_release(program);
    return err->code;
  }
  cuda_timeline_open(program);
  program_tell(program);
  *out = program;
  return ERR_OK;
}

static int cuda_measure(const struct backend_request *request, size_t *bytes, struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  if (!steps_make(program, request, err))
    *bytes = program->block_bytes;
  cuda_release(program);
  return err->code;
}

static int cuda_room(int device, size_t *bytes, struct err *err) {
  if (cuda_device_use(device, err))
    return err->code;
  return cuda_memory_available(bytes, err);
}

static int cuda_places(const struct backend_request *request, bool *is_valid, struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  if (!blueprint_make(program, request, err))
    cuda_find_places(program, is_valid);
  cuda_release(program);
  return err->code;
}

static bool cuda_message(const struct backend_program *program, enum backend_part part, bool is_sent,
                         struct backend_message *out) {
  const struct cuda_message *message = is_sent ? program->sent[part] : program->received[part];
  if (message)
    *out = message->of;
  return message != NULL;
}

/* On the host a node reads what no node computed where the run has it: such a value needs no buffer. */
static bool host_step_reads(const struct cuda_step *step, int value) {
  for (int i = 0; step->kind == CUDA_STEP_HOST && i < step->node->n_inputs; i++)
    if (step->node->inputs[i] == value)
      return true;
  return false;
}

/* Once lives are settled results may have an input's bytes: their steps come behind one that reads it. */
static bool cuda_reads(const struct backend_program *program, int value) {
  int buffer = program->values[value].buffer;
  if (buffer >= 0 && program->buffers[buffer].is_used)
    return true;
  for (int s = 0; s < program->n_steps; s++)
    if (host_step_reads(program->steps[s], value))
      return true;
  return false;
}

static size_t cuda_block_bytes(const struct backend_program *program) {
  return program->block_bytes;
}

static void cuda_replayed(const struct backend_program *program, struct backend_replayed *out) {
  *out = program->replayed;
}

/* A failure is not told: copies from and to memory that is not pinned are only slower. */
static void cuda_pin(void *bytes, size_t size_bytes) {
  if (cuda_device_use_any() && cudaHostRegister(bytes, size_bytes, cudaHostRegisterPortable) != cudaSuccess)
    cudaGetLastError();
}

static void cuda_unpin(void *bytes) {
  if (cuda_device_use_any() && cudaHostUnregister(bytes) != cudaSuccess)
    cudaGetLastError();
}

extern const struct device_memory cuda_device_memory;

const struct backend_def backend_cuda = {
    .name = "cuda",
    .prepare = cuda_prepare,
    .measure = cuda_measure,
    .room = cuda_room,
    .find_places = cuda_places,
    .run = cuda_run,
    .memory_bytes = cuda_block_bytes,
    .bytes = cuda_memory_bytes,
    .message = cuda_message,
    .reads = cuda_reads,
    .replayed = cuda_replayed,
    .host_node = cuda_host_node,
    .release = cuda_release,
    .fingerprint = cuda_fingerprint,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .memory = &cuda_device_memory,
};

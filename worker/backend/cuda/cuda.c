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
    program->nodes[n] = (struct cuda_node){.kept = -1};
    if (node_check(graph, node, err))
      return err->code;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        program->values[node->inputs[i]].last_node = n;
  }
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
  if (program->nodes[node->index].is_passed_over)
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

static int program_open(struct backend_program *program, const int *watched, int n_watched, struct err *err) {
  const struct graph *graph = program->graph;
  struct arena *memory = &program->memory;
  program->values = arena_new(memory, ((size_t)graph->n_values + 1) * sizeof program->values[0]);
  program->nodes = arena_new(memory, ((size_t)graph->n_nodes + 1) * sizeof program->nodes[0]);
  program->watched = arena_copy(memory, watched, (size_t)n_watched * sizeof *watched);
  program->n_watched = n_watched;
  program->landings = arena_new(memory, ((size_t)n_watched + 1) * sizeof program->landings[0]);
  program->pieces = arena_new(memory, CUDA_PIECES_MAX * sizeof program->pieces[0]);
  if (device_open(program, err) || graph_survey(program, err) || nodes_prepare(program, err))
    return err->code;
  cuda_segments_cut(program);
  cuda_lives_settle(program);
  if (cuda_replay_settle(program, err))
    return err->code;
  if (cuda_segments_open(program, err) || cuda_memory_open(program, err))
    return err->code;
  cuda_timeline_open(program);
  program_tell(program);
  return ERR_OK;
}

static void step_release(struct cuda_step *step) {
  if (step->release)
    step->release(step);
  free(step->args);
}

static void cuda_release(struct backend_program *program) {
  struct err ignored = ERR_NONE;
  cudaStream_t streams[3];
  if (!program)
    return;
  cuda_device_use(program->view.options.device, &ignored);
  for (int s = 0; s < program->n_steps; s++)
    step_release(program->steps[s]);
  for (int c = 0; c < program->n_conversions; c++)
    step_release(program->conversions[c].step);
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
  *out = NULL;
  if (request->options.n_contexts > 1)
    return err_set(err, ERR_UNSUPPORTED,
                   "the cuda backend has one microbatch in flight at a time, and not %d",
                   request->options.n_contexts);
  if (request->options.n_cuts > 0)
    return err_set(err, ERR_UNSUPPORTED, "the cuda backend computes whole graphs, and no stages");
  struct backend_program *program = mem_new(sizeof *program);
  program->graph = request->graph;
  arena_init(&program->memory);
  program->view = (struct cuda_program_view){
      .graph = request->graph, .options = request->options, .memory = &program->memory};
  if (backend_thread_init(err) || program_open(program, request->watched, request->n_watched, err)) {
    cuda_release(program);
    return err->code;
  }
  *out = program;
  return ERR_OK;
}

static size_t cuda_memory_bytes(const struct backend_program *program) {
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
    .run = cuda_run,
    .memory_bytes = cuda_memory_bytes,
    .replayed = cuda_replayed,
    .host_node = cuda_host_node,
    .release = cuda_release,
    .fingerprint = cuda_fingerprint,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .memory = &cuda_device_memory,
};

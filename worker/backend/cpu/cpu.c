/* The cpu backend: oneDNN primitives in blocked layouts, reference kernels for the rest. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/product.h"
#include "worker/backend/node.h"
#include "common/trace/trace.h"

#define KERNEL(symbol) extern const struct cpu_kernel cpu_##symbol;
#include "worker/backend/cpu/kernel.def"
#undef KERNEL

static const struct cpu_kernel *const kernels[] = {
#define KERNEL(symbol) &cpu_##symbol,
#include "worker/backend/cpu/kernel.def"
#undef KERNEL
};

/* One engine for the process: it holds no memory of ours and is never destroyed. */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static char fingerprint[64];

const char *cpu_isa_name(void) {
  dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
  } names[] = {
      {dnnl_cpu_isa_sse41, "sse41"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx512_mic, "avx512_mic"},
      {dnnl_cpu_isa_avx512_mic_4ops, "avx512_mic_4ops"},
      {dnnl_cpu_isa_avx512_core, "avx512_core"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
      {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (names[i].isa == isa)
      return names[i].name;
  return "any";
}

static void engine_start(void) {
  const dnnl_version_t *version = dnnl_version();
  snprintf(fingerprint, sizeof fingerprint, "oneDNN %d.%d.%d %s", version->major, version->minor,
           version->patch, cpu_isa_name());
  dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_strict);
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
    engine = NULL;
}

static const char *cpu_fingerprint(void) {
  pthread_once(&engine_once, engine_start);
  return fingerprint;
}

static int run_deliver(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  (void)program;
  (void)err;
  if (run->on_value)
    run->on_value(run->user, step->subject, step->args[0].data);
  return ERR_OK;
}

/* A step for each time that the caller watches this value; the stage of the node that makes it has them, or
   the first stage. */
static void value_deliver(struct backend_program *program, const int *watched, int n_watched, int value) {
  const struct value *of = &program->graph->values[value];
  int node = of->kind == VALUE_RESULT ? of->producer : 0;
  for (int w = 0; w < n_watched && program->values[value].is_watched; w++) {
    if (watched[w] != value)
      continue;
    struct cpu_step *step = cpu_step_new(program, NULL);
    step->run = run_deliver;
    step->subject = w;
    step->owner = node;
    cpu_read(program, step, 0, value, NULL);
    cpu_step_end(program, step, NULL);
  }
}

/* Who reads what last, and which backward node belongs to which forward node. */
static int graph_survey(struct backend_program *program, const int *watched, int n_watched, struct err *err) {
  const struct graph *graph = program->graph;
  for (int v = 0; v < graph->n_values; v++)
    program->values[v] = (struct cpu_value){.buffer = -1, .last_node = -1};
  for (int w = 0; w < n_watched; w++)
    program->values[watched[w]].is_watched = true;
  for (int n = 0; n < graph->n_nodes; n++)
    program->nodes[n] = (struct cpu_node){.workspace = -1};
  program->first_backward = graph->n_nodes;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (node_check(graph, node, err))
      return err->code;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0) {
        program->values[node->inputs[i]].last_node = n;
        program->values[node->inputs[i]].n_reads++;
      }
    if (node->forward >= 0)
      program->nodes[node->forward].has_gradient = true;
    if (node->forward >= 0 && n < program->first_backward)
      program->first_backward = n;
  }
  return ERR_OK;
}

bool cpu_suits_kernels(const struct graph *graph, const struct node *node) {
  bool has_f32_out =
      node->outputs[0] < 0 ? node->op->min_outputs == 0 : graph->values[node->outputs[0]].dtype == DTYPE_F32;
  return node_has_elements(graph, node, node->n_inputs) && has_f32_out && node->n_inputs > 0 &&
         node->inputs[0] >= 0 && graph->values[node->inputs[0]].dtype == DTYPE_F32;
}

static void node_prepare(struct backend_program *program, const struct node *node) {
  if (program->nodes[node->index].is_passed_over)
    return;
  if (node_is_alias(node)) {
    cpu_alias(program, node->outputs[0], node->inputs[0]);
    return;
  }
  if (cpu_suits_kernels(program->graph, node))
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
      if (strcmp(kernels[k]->op, node->op->name) == 0 && kernels[k]->prepare(program, node))
        return;
  if (program->err.code == ERR_OK)
    cpu_reference(program, node);
}

static int nodes_prepare(struct backend_program *program, const int *watched, int n_watched,
                         struct err *err) {
  const struct graph *graph = program->graph;
  for (int v = 0; v < graph->n_values; v++)
    if (graph->values[v].kind != VALUE_RESULT)
      value_deliver(program, watched, n_watched, v);
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (n == program->first_backward)
      program->n_forward = program->n_steps;
    node_prepare(program, node);
    for (int o = 0; o < node->n_outputs && program->err.code == ERR_OK; o++)
      if (node->outputs[o] >= 0)
        value_deliver(program, watched, n_watched, node->outputs[o]);
    if (program->err.code) {
      *err = program->err;
      return err->code;
    }
  }
  if (program->first_backward == graph->n_nodes)
    program->n_forward = program->n_steps;
  return ERR_OK;
}

static int program_open(struct backend_program *program, struct err *err) {
  const struct graph *graph = program->graph;
  dnnl_status_t status = program->engine ? dnnl_success : dnnl_out_of_memory;
  if (!status)
    status = dnnl_stream_create(&program->stream, program->engine, dnnl_stream_default_flags);
  if (!status)
    status = dnnl_primitive_attr_create(&program->attr);
  if (!status)
    status = dnnl_primitive_attr_set_scratchpad_mode(program->attr, dnnl_scratchpad_mode_user);
  if (status) {
    cpu_fail(program, NULL, status, "start");
    *err = program->err;
    return err->code;
  }
  program->values = arena_new(&program->memory, ((size_t)graph->n_values + 1) * sizeof program->values[0]);
  program->nodes = arena_new(&program->memory, ((size_t)graph->n_nodes + 1) * sizeof program->nodes[0]);
  program->contexts = arena_new(&program->memory, (size_t)program->n_contexts * sizeof program->contexts[0]);
  return ERR_OK;
}

static void descs_release(struct backend_program *program) {
  for (int d = 0; d < program->n_descs; d++)
    dnnl_primitive_desc_destroy(program->descs[d]);
  program->n_descs = 0;
}

static void cpu_release(struct backend_program *program) {
  if (!program)
    return;
  for (int s = 0; s < program->n_steps; s++)
    cpu_step_release(program->steps[s]);
  cpu_products_release(program);
  descs_release(program);
  dnnl_primitive_attr_destroy(program->attr);
  dnnl_stream_destroy(program->stream);
  arena_fini(&program->memory);
  free(program->block);
  free(program->buffers);
  free(program->steps);
  free(program->descs);
  free(program);
}

/* The blueprint: all steps of the whole graph, which have no memory yet. */
static int blueprint_make(struct backend_program *program, const struct backend_request *request,
                          struct err *err) {
  const int *watched = request->watched, n_watched = request->n_watched;
  pthread_once(&engine_once, engine_start);
  program->graph = request->graph;
  program->n_contexts = request->options.n_contexts > 1 ? request->options.n_contexts : 1;
  program->engine = engine;
  program->is_bf16 = request->options.precision == PRECISION_BF16 &&
                     cpu_check_precision(request->options.precision, &(struct err){0}) == ERR_OK;
  program->is_fast = request->options.precision == PRECISION_F32_FAST;
  arena_init(&program->memory);
  int code = backend_thread_init(err);
  if (!code)
    code = program_open(program, err);
  if (!code)
    code = graph_survey(program, watched, n_watched, err);
  if (!code)
    cpu_types_survey(program);
  if (!code)
    cpu_norms_survey(program);
  if (!code)
    code = nodes_prepare(program, watched, n_watched, err);
  descs_release(program);
  return code;
}

/* All steps of the program that is wanted, still without memory. */
static int steps_make(struct backend_program *program, const struct backend_request *request,
                      struct err *err) {
  int code = blueprint_make(program, request, err);
  if (!code)
    code = cpu_carve(program, &request->options, err);
  if (!code)
    code = cpu_replay(program, &request->options, err);
  return code;
}

static int cpu_prepare(const struct backend_request *request, struct backend_program **out, struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  *out = NULL;
  int code = steps_make(program, request, err);
  if (!code)
    code = cpu_memory_open(program, err);
  if (code) {
    cpu_release(program);
    return code;
  }
  *out = program;
  return ERR_OK;
}

static int cpu_measure(const struct backend_request *request, size_t *bytes, struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  int code = steps_make(program, request, err);
  if (!code)
    *bytes = cpu_memory_measure(program);
  cpu_release(program);
  return code;
}

static int cpu_places(const struct backend_request *request, bool *is_valid, struct err *err) {
  struct backend_program *program = mem_new(sizeof *program);
  int code = blueprint_make(program, request, err);
  if (!code)
    cpu_find_places(program, is_valid);
  cpu_release(program);
  return code;
}

static bool cpu_message(const struct backend_program *program, enum backend_part part, bool is_sent,
                        struct backend_message *out) {
  const struct cpu_message *message = is_sent ? program->sent[part] : program->received[part];
  if (message)
    *out = message->of;
  return message != NULL;
}

static bool cpu_reads(const struct backend_program *program, int value) {
  int buffer = program->values[value].buffer;
  for (int s = 0; s < program->n_steps && buffer >= 0; s++)
    for (int a = 0; a < program->steps[s]->n_args; a++) {
      int used = program->steps[s]->args[a].buffer;
      if (used >= 0 && program->buffers[used].root == program->buffers[buffer].root)
        return true;
    }
  return false;
}

/* On a CPU with OpenMP a primitive has run when execute returns: there is nothing to wait for. */
int cpu_execute(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                struct err *err) {
  (void)run;
  dnnl_status_t status = dnnl_primitive_execute(step->primitive, program->stream, step->n_exec, step->exec);
  if (status && step->node)
    return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed with status %d", (int)status);
  if (status)
    return err_set(err, ERR_INTERNAL, "oneDNN failed with status %d", (int)status);
  return ERR_OK;
}

static void step_trace(const struct backend_program *program, const struct cpu_step *step,
                       const struct backend_run *run, uint64_t begin_ns) {
  if (!step->node)
    return;
  const char *part = step->node->index < program->first_backward ? "forward" : "backward";
  trace_span(&(struct trace_span){.category = step->is_replay ? "replay" : part,
                                  .name = step->node->name,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = run->context.step,
                                  .index = run->context.microbatch});
}

static int step_run(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  if ((step->reads_host || (step->uses_saved && step->in != run->in)) &&
      cpu_memory_locate(program, step, run->in, err))
    return err->code;
  return step->run(program, step, run, err);
}

static int steps_run(struct backend_program *program, int begin, int end, const struct backend_run *run,
                     struct err *err) {
  bool is_traced = trace_is_on();
  for (int s = begin; s < end; s++) {
    struct cpu_step *step = program->steps[s];
    if (step->node && run->is_cancelled && run->is_cancelled(run->user))
      return node_error(step->node, err, ERR_CANCELLED, "not computed: the execution was cancelled");
    uint64_t begin_ns = is_traced ? trace_now_ns() : 0;
    int code = step_run(program, step, run, err);
    if (code)
      return code;
    if (is_traced)
      step_trace(program, step, run, begin_ns);
  }
  return ERR_OK;
}

/* Other executions may have had other weights since the forward part. What it waited for is there. */
static int steps_resume(struct backend_program *program, const struct backend_run *run, struct err *err) {
  struct backend_run again = *run;
  again.before_weight = NULL;
  for (int s = 0; s < program->n_forward; s++)
    if (program->steps[s]->is_resumed && step_run(program, program->steps[s], &again, err))
      return err->code;
  return ERR_OK;
}

static void inputs_locate(struct backend_program *program, const struct backend_run *run) {
  const struct graph *graph = program->graph;
  for (int i = 0; i < graph->n_inputs; i++) {
    int buffer = program->values[graph->inputs[i]].buffer;
    if (buffer >= 0)
      program->buffers[buffer].data = (void *)run->inputs[i];
  }
}

static int cpu_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  bool is_backward = run->part == BACKEND_BACKWARD;
  int begin = is_backward ? program->n_forward : 0;
  int end = run->part == BACKEND_FORWARD ? program->n_forward : program->n_steps;
  CHECK(run->in >= 0 && run->in < program->n_contexts);
  struct cpu_context *context = &program->contexts[run->in];
  CHECK(!is_backward || context->execution != 0);
  program->execution = is_backward ? context->execution : ++program->executions;
  context->execution = 0;
  if (backend_thread_init(err))
    return err->code;
  inputs_locate(program, run);
  if (is_backward && steps_resume(program, run, err))
    return err->code;
  int code = steps_run(program, begin, end, run, err);
  if (!code && run->part == BACKEND_FORWARD)
    context->execution = program->execution;
  return code;
}

static size_t cpu_block_bytes(const struct backend_program *program) {
  return program->block_bytes;
}

static void cpu_replayed(const struct backend_program *program, struct backend_replayed *out) {
  *out = program->replayed;
  if (out->n_replays == 0)
    out->unreplayed_bytes = program->block_bytes;
}

const struct backend_def backend_cpu = {
    .name = "cpu",
    .check_precision = cpu_check_precision,
    .prepare = cpu_prepare,
    .measure = cpu_measure,
    .find_places = cpu_places,
    .run = cpu_run,
    .memory_bytes = cpu_block_bytes,
    .bytes = cpu_memory_bytes,
    .message = cpu_message,
    .reads = cpu_reads,
    .replayed = cpu_replayed,
    .release = cpu_release,
    .fingerprint = cpu_fingerprint,
};

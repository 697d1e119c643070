/* The reference backend: every op's reference kernel, in node order, on dense host memory. Each context has
   all of a program's memory for itself. */
#include <stdlib.h>
#include <string.h>

#include "model/graph/liveness.h"
#include "worker/backend/backend.h"
#include "worker/backend/memory.h"

struct backend_program {
  const struct graph *graph;
  struct arena memory;   /* the arrays below */
  struct liveness live;  /* in `bytes` */
  int *watch;            /* [n_values] the caller's index, or -1 */
  int *next_watch;       /* [n_watched] another index of the same value, or -1 */
  void **data;           /* [n_values] where its bytes are in this execution */
  struct op_call *calls; /* [n_nodes] */
  bool *is_weight_read;
  int n_forward; /* the nodes before the backward part */
  int n_contexts;
  bool *is_in_flight; /* [n_contexts] the forward part has run, the backward part has not */
  char *bytes;        /* [n_contexts * live.size_bytes] */
};

static bool is_computed(const struct graph *graph, int value) {
  return graph->values[value].kind == VALUE_RESULT;
}

static void ref_release(struct backend_program *program) {
  if (!program)
    return;
  arena_fini(&program->memory);
  free(program->bytes);
  free(program);
}

static int count_forward(const struct graph *graph) {
  int n = 0;
  while (n < graph->n_nodes && graph->nodes[n]->forward < 0)
    n++;
  return n;
}

/* Of the options n_contexts counts: all is f32, and the same bits each time. */
static int ref_prepare(const struct backend_request *request, struct backend_program **out, struct err *err) {
  const struct graph *graph = request->graph;
  const int *watched = request->watched, n_watched = request->n_watched;
  *out = NULL;
  if (request->options.n_cuts > 0)
    return err_set(err, ERR_UNSUPPORTED, "the ref backend computes whole graphs, and no stages");
  struct backend_program *program = mem_new(sizeof *program);
  size_t n = (size_t)graph->n_values;
  arena_init(&program->memory);
  program->graph = graph;
  program->n_forward = count_forward(graph);
  program->n_contexts = request->options.n_contexts > 1 ? request->options.n_contexts : 1;
  program->is_in_flight = arena_new(&program->memory, (size_t)program->n_contexts);
  program->watch = arena_new(&program->memory, n * sizeof *program->watch);
  program->next_watch = arena_new(&program->memory, (size_t)n_watched * sizeof *program->next_watch);
  program->data = arena_new(&program->memory, n * sizeof *program->data);
  program->is_weight_read = arena_new(&program->memory, n * sizeof *program->is_weight_read);
  program->calls = arena_new(&program->memory, (size_t)graph->n_nodes * sizeof *program->calls);
  for (int i = 0; i < graph->n_nodes; i++)
    op_call_init(&program->calls[i], &program->memory, graph, graph->nodes[i]);
  memset(program->watch, -1, n * sizeof *program->watch);
  for (int w = n_watched - 1; w >= 0; w--) {
    program->next_watch[w] = program->watch[watched[w]];
    program->watch[watched[w]] = w;
  }
  liveness_plan(graph, &program->memory, &program->live);
  program->bytes = backend_memory_new(program->live.size_bytes * (size_t)program->n_contexts, err);
  if (!program->bytes) {
    ref_release(program);
    return err->code;
  }
  *out = program;
  return ERR_OK;
}

/* Points every value that no node computes, or that a node computes into planned memory, at its bytes. */
static void locate_values(struct backend_program *program, const struct backend_run *run) {
  const struct graph *graph = program->graph;
  char *bytes = program->bytes + program->live.size_bytes * (size_t)run->in;
  for (int v = 0; v < graph->n_values; v++) {
    const struct value *value = &graph->values[v];
    program->data[v] = is_computed(graph, v) ? bytes + program->live.offset[v] : (void *)value->data;
    if (value->kind == VALUE_INITIALIZER && run->weights && run->weights[v])
      program->data[v] = (void *)run->weights[v];
  }
  for (int i = 0; i < graph->n_inputs; i++)
    program->data[graph->inputs[i]] = (void *)run->inputs[i];
  memset(program->is_weight_read, 0, (size_t)graph->n_values * sizeof *program->is_weight_read);
}

/* Announces the weights that the node is the first to read. */
static void announce_weights(struct backend_program *program, const struct backend_run *run,
                             const struct node *node) {
  for (int i = 0; i < node->n_inputs && run->weights; i++) {
    int v = node->inputs[i];
    if (v < 0 || !run->weights[v] || program->is_weight_read[v])
      continue;
    program->is_weight_read[v] = true;
    if (run->before_weight)
      run->before_weight(run->user, v);
  }
}

static void *data_of(const struct backend_program *program, int v) {
  return v < 0 ? NULL : program->data[liveness_owner(&program->live, v)];
}

static int run_node(struct backend_program *program, const struct backend_run *run, const struct node *node,
                    struct err *err) {
  struct op_call *call = &program->calls[node->index];
  call->context = run->context;
  announce_weights(program, run, node);
  if (run->is_cancelled && run->is_cancelled(run->user))
    return err_set(err, ERR_CANCELLED, "the execution was cancelled before node '%s'", node->name);
  for (int i = 0; i < node->n_inputs; i++)
    call->in[i].data = data_of(program, node->inputs[i]);
  for (int o = 0; o < node->n_outputs; o++)
    call->out[o].data = data_of(program, node->outputs[o]);
  if (node->op->ref(call, err))
    return err->code;
  for (int o = 0; o < node->n_outputs && run->on_value; o++)
    for (int w = node->outputs[o] < 0 ? -1 : program->watch[node->outputs[o]]; w >= 0;
         w = program->next_watch[w])
      run->on_value(run->user, w, call->out[o].data);
  return ERR_OK;
}

/* What the forward part waited for is there. */
static void skip_weights(struct backend_program *program, const struct backend_run *run) {
  struct backend_run again = *run;
  again.before_weight = NULL;
  for (int n = 0; n < program->n_forward; n++)
    announce_weights(program, &again, program->graph->nodes[n]);
}

static int ref_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  const struct graph *graph = program->graph;
  bool is_backward = run->part == BACKEND_BACKWARD, is_forward = run->part == BACKEND_FORWARD;
  CHECK(run->in >= 0 && run->in < program->n_contexts);
  CHECK(!is_backward || program->is_in_flight[run->in]);
  program->is_in_flight[run->in] = false;
  locate_values(program, run);
  if (is_backward)
    skip_weights(program, run);
  int end = is_forward ? program->n_forward : graph->n_nodes;
  for (int n = is_backward ? program->n_forward : 0; n < end; n++)
    if (run_node(program, run, graph->nodes[n], err))
      return err->code;
  program->is_in_flight[run->in] = is_forward;
  return ERR_OK;
}

static size_t ref_memory_bytes(const struct backend_program *program) {
  return program->live.size_bytes * (size_t)program->n_contexts;
}

static void ref_bytes(const struct backend_program *program, struct backend_bytes *out) {
  *out = (struct backend_bytes){.saved = program->live.size_bytes};
}

static int ref_check_precision(enum precision precision, struct err *err) {
  (void)precision;
  return err_set(err, ERR_UNSUPPORTED, "the reference kernels compute in fp32 only");
}

static const char *ref_fingerprint(void) {
  return "reference kernels";
}

const struct backend_def backend_ref = {
    .name = "ref",
    .check_precision = ref_check_precision,
    .prepare = ref_prepare,
    .run = ref_run,
    .memory_bytes = ref_memory_bytes,
    .bytes = ref_bytes,
    .release = ref_release,
    .fingerprint = ref_fingerprint,
};

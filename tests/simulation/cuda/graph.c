/* Graphs: captured operations and what each comes after. A launch does the nodes in a drawn order that only
   the edges bound; launches of one executable graph follow one another. */
#include "tests/simulation/cuda/simulation.h"

#include <stdlib.h>

#include "common/agree/random.h"
#include "common/base/memory.h"

struct node {
  struct sim_op *op;
  int *before, n_before, *after, n_after, after_capacity;
};

struct CUgraph_st {
  struct node *nodes;
  int n_nodes, capacity;
  atomic_int refs;
};

struct CUgraphExec_st {
  struct CUgraph_st *graph;
  atomic_uint_least64_t n_launched, n_finished;
  atomic_int refs;
};

struct CUgraph_st *sim_graph_new(void) {
  struct CUgraph_st *graph = mem_new(sizeof *graph);
  graph->refs = 1;
  return graph;
}

int sim_graph_add(struct CUgraph_st *graph, struct sim_op *op, const int *ends, int n_ends) {
  struct node *node;
  array_reserve((void **)&graph->nodes, &graph->capacity, graph->n_nodes, sizeof *graph->nodes);
  node = &graph->nodes[graph->n_nodes];
  *node = (struct node){.op = op, .n_before = n_ends};
  node->before = mem_new((size_t)(n_ends + 1) * sizeof *node->before);
  for (int i = 0; i < n_ends; i++) {
    struct node *earlier = &graph->nodes[ends[i]];
    node->before[i] = ends[i];
    array_reserve((void **)&earlier->after, &earlier->after_capacity, earlier->n_after,
                  sizeof *earlier->after);
    earlier->after[earlier->n_after++] = graph->n_nodes;
  }
  return graph->n_nodes++;
}

bool sim_graph_is_joined(const struct CUgraph_st *graph, const int *ends, int n_ends) {
  bool *reached = mem_new((size_t)graph->n_nodes + 1), all = true;
  for (int i = 0; i < n_ends; i++)
    reached[ends[i]] = true;
  for (int n = graph->n_nodes - 1; n >= 0; n--) { /* edges lead from lower to higher */
    all = all && reached[n];
    for (int i = 0; i < graph->nodes[n].n_before; i++)
      reached[graph->nodes[n].before[i]] |= reached[n];
  }
  free(reached);
  return all;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph)
    return sim_return(cudaErrorInvalidValue);
  if (--graph->refs > 0)
    return cudaSuccess;
  for (int n = 0; n < graph->n_nodes; n++) {
    sim_op_put(graph->nodes[n].op);
    free(graph->nodes[n].before);
    free(graph->nodes[n].after);
  }
  free(graph->nodes);
  free(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
  cudaError_t error = sim_device_error(sim_device());
  (void)flags;
  if (error || !graph)
    return sim_return(error ? error : cudaErrorInvalidValue);
  graph->refs++;
  *out = mem_new(sizeof **out);
  (*out)->graph = graph;
  (*out)->refs = 1;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (!exec)
    return sim_return(cudaErrorInvalidValue);
  if (--exec->refs == 0) {
    cudaGraphDestroy(exec->graph);
    free(exec);
  }
  return cudaSuccess;
}

struct launch_op {
  struct sim_op op;
  struct CUgraphExec_st *exec;
  uint64_t number;
};

/* One launch under way. */
struct launch_state {
  uint64_t key, n_drawn;
  int n_done, n_ready;
  int *ready, *n_missing; /* nodes that may be done; for each, how many before it are not done */
  void **states;
};

static struct launch_state *launch_state_new(const struct CUgraph_st *graph) {
  size_t n = (size_t)graph->n_nodes + 1;
  struct launch_state *state = mem_new(sizeof *state);
  state->key = sim_random();
  state->ready = mem_new(n * sizeof *state->ready);
  state->n_missing = mem_new(n * sizeof *state->n_missing);
  state->states = mem_new(n * sizeof *state->states);
  for (int i = 0; i < graph->n_nodes; i++) {
    state->n_missing[i] = graph->nodes[i].n_before;
    if (state->n_missing[i] == 0)
      state->ready[state->n_ready++] = i;
  }
  return state;
}

static void launch_state_free(struct launch_state *state) {
  free(state->ready);
  free(state->n_missing);
  free(state->states);
  free(state);
}

static void node_done(const struct CUgraph_st *graph, struct launch_state *state, int at) {
  int n = state->ready[at];
  state->ready[at] = state->ready[--state->n_ready];
  for (int i = 0; i < graph->nodes[n].n_after; i++)
    if (--state->n_missing[graph->nodes[n].after[i]] == 0)
      state->ready[state->n_ready++] = graph->nodes[n].after[i];
  state->n_done++;
}

/* Does a part of one node's work, of those that can be done. */
static enum sim_progress launch_step(const struct CUgraph_st *graph, struct launch_state *state, int device) {
  int first = (int)(random_bits(state->key, state->n_drawn++) % (uint64_t)state->n_ready);
  for (int i = 0; i < state->n_ready; i++) {
    int at = (first + i) % state->n_ready, n = state->ready[at];
    struct sim_op *op = graph->nodes[n].op;
    enum sim_progress progress = SIM_DONE;
    if (sim_may_run(op, device))
      progress = op->run(op, &state->states[n], device);
    else if (op->drop)
      op->drop(op, state->states[n]);
    if (progress == SIM_DONE)
      node_done(graph, state, at);
    if (progress != SIM_BLOCKED)
      return SIM_PROGRESS;
  }
  return SIM_BLOCKED;
}

static enum sim_progress launch_run(struct sim_op *op, void **memory, int device) {
  struct launch_op *launch = (struct launch_op *)op;
  const struct CUgraph_st *graph = launch->exec->graph;
  struct launch_state *state = *memory;
  enum sim_progress progress;
  if (launch->exec->n_finished != launch->number)
    return SIM_BLOCKED;
  if (!state)
    *memory = state = launch_state_new(graph);
  progress = state->n_done < graph->n_nodes ? launch_step(graph, state, device) : SIM_PROGRESS;
  if (state->n_done < graph->n_nodes)
    return progress;
  launch_state_free(state);
  launch->exec->n_finished++;
  return SIM_DONE;
}

static void launch_fini(struct sim_op *op) {
  cudaGraphExecDestroy(((struct launch_op *)op)->exec);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  struct launch_op *launch;
  cudaError_t error;
  stream = sim_stream_of(stream);
  if (!exec)
    return sim_return(cudaErrorInvalidValue);
  if (stream->capture)
    return sim_return(sim_capture_spoil(stream->capture, cudaErrorNotSupported));
  launch = sim_op_new(sizeof *launch, "graph", launch_run);
  launch->op.fini = launch_fini;
  exec->refs++;
  launch->exec = exec;
  launch->number = exec->n_launched;
  error = sim_enqueue(stream, &launch->op);
  if (!error)
    exec->n_launched++;
  return sim_return(error);
}

/* Stages estimated from the graphs. Values that are another's bytes under another shape count once. */
#include "model/stages/estimates.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/liveness.h"
#include "model/graph/memory_plan.h"
#include "model/graph/op.h"
#include "model/stages/choose.h"

/* Time is counted in bytes that are read and written: in the time of one byte, a core does so many
   multiply-adds. A layer's gradients take twice its own multiply-adds. What crosses an edge is moved once
   more on either side. Each byte of a parameter's gradient is copied to where it is sent from, looked at,
   added to that of another microbatch, and sent: so a layer of many weights and few positions takes longer
   than its nodes do. On ResNet-50 it took as long as moving 6 to 15 bytes. */
static const double MULTIPLY_ADDS_PER_BYTE = 4, GRADIENT_WORK = 2, CROSSING_MOVES = 4, DELIVERY_MOVES = 12;

/* Bytes of the train graph that nodes compute. */
struct flow {
  int maker;   /* the forward node whose stage makes it */
  int highest; /* the highest forward node whose stage reads it; -1 */
  int lowest;  /* the lowest whose stage reads it, below the maker by a gradient node only; INT_MAX */
  bool is_forward;
};

struct estimator {
  const struct model *model;
  const struct graph *graph; /* train */
  int n_forward;             /* its forward nodes: they come before all others */
  const struct stages_wanted *wanted;
  int *root;           /* [n_values] the value whose bytes it is */
  struct flow *flows;  /* [n_values] of roots that nodes compute */
  double *cost;        /* [n_forward + 1] of the nodes before each, and of their gradient nodes */
  uint64_t *up, *down; /* [n_forward + 1] that cross a cut there */
  struct arena memory;
  struct liveness liveness;
};

static uint64_t value_bytes(const struct value *value) {
  return (uint64_t)shape_elems(&value->shape) * dtype_size(value->dtype);
}

/* The forward node in whose stage the node runs. */
static int node_home(const struct node *node) {
  return node->forward >= 0 ? node->forward : node->index;
}

static bool is_flow(const struct estimator *of, int value) {
  return of->root[value] == value && of->graph->values[value].kind == VALUE_RESULT;
}

static void find_roots(struct estimator *of) {
  for (int v = 0; v < of->graph->n_values; v++)
    of->root[v] = v;
  for (int n = 0; n < of->graph->n_nodes; n++) {
    const struct node *node = of->graph->nodes[n];
    if ((node->op->flags & OP_ALIAS) && node->inputs[0] >= 0 && node->outputs[0] >= 0)
      of->root[node->outputs[0]] = of->root[node->inputs[0]];
  }
}

static void flow_read(struct estimator *of, const struct node *node, int value) {
  struct flow *flow = &of->flows[of->root[value]];
  int home = node_home(node);
  flow->highest = home > flow->highest ? home : flow->highest;
  flow->lowest = home < flow->lowest ? home : flow->lowest;
}

static void find_flows(struct estimator *of) {
  for (int v = 0; v < of->graph->n_values; v++)
    of->flows[v] = (struct flow){.maker = -1, .highest = -1, .lowest = INT_MAX};
  for (int n = 0; n < of->graph->n_nodes; n++) {
    const struct node *node = of->graph->nodes[n];
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        flow_read(of, node, node->inputs[i]);
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0 && is_flow(of, node->outputs[o])) {
        of->flows[node->outputs[o]].maker = node_home(node);
        of->flows[node->outputs[o]].is_forward = node->forward < 0;
      }
  }
}

/* Adds to what crosses from place `from` to place `to`, of which sums are made at the end. */
static void places_add(uint64_t *sums, int from, int to, uint64_t bytes) {
  if (from > to)
    return;
  sums[from] += bytes;
  sums[to + 1] -= bytes; /* wraps; the sums do not */
}

static void find_crossings(struct estimator *of) {
  for (int v = 0; v < of->graph->n_values; v++) {
    const struct flow *flow = &of->flows[v];
    if (!is_flow(of, v) || flow->maker < 0)
      continue;
    if (flow->is_forward)
      places_add(of->up, flow->maker + 1, flow->highest, value_bytes(&of->graph->values[v]));
    if (flow->lowest < INT_MAX)
      places_add(of->down, flow->lowest + 1, flow->maker, value_bytes(&of->graph->values[v]));
  }
  for (int p = 1; p <= of->n_forward; p++) {
    of->up[p] += of->up[p - 1];
    of->down[p] += of->down[p - 1];
  }
}

static double multiply_adds(const struct estimator *of, const struct node *node) {
  return node->forward < 0 && node->op->multiply_adds ? node->op->multiply_adds(of->graph, node) : 0;
}

static double node_cost(const struct estimator *of, const struct node *node) {
  bool has_gradients = strcmp(node->op->name, "LinearCrossEntropy") == 0; /* counts those itself */
  double bytes = multiply_adds(of, node) * (has_gradients ? 1 : 1 + GRADIENT_WORK) / MULTIPLY_ADDS_PER_BYTE;
  if (node->op->flags & OP_ALIAS)
    return bytes;
  for (int i = 0; i < node->n_inputs; i++)
    bytes += node->inputs[i] >= 0 ? (double)value_bytes(&of->graph->values[node->inputs[i]]) : 0;
  for (int o = 0; o < node->n_outputs; o++)
    bytes += node->outputs[o] >= 0 ? (double)value_bytes(&of->graph->values[node->outputs[o]]) : 0;
  return bytes;
}

static void find_costs(struct estimator *of) {
  for (int n = 0; n < of->graph->n_nodes; n++)
    of->cost[node_home(of->graph->nodes[n]) + 1] += node_cost(of, of->graph->nodes[n]);
  for (int p = 0; p < of->model->n_params; p++) {
    const struct value *grad = &of->graph->values[of->model->params[p].grad];
    if (grad->producer >= 0)
      of->cost[node_home(of->graph->nodes[grad->producer]) + 1] += DELIVERY_MOVES * (double)value_bytes(grad);
  }
  for (int p = 1; p <= of->n_forward; p++)
    of->cost[p] += of->cost[p - 1];
}

static void estimator_init(struct estimator *of, const struct model *model) {
  const struct graph *graph = model->train;
  size_t n_values = (size_t)graph->n_values + 1, n_nodes = (size_t)graph->n_nodes + 2;
  *of = (struct estimator){.model = model, .graph = graph};
  while (of->n_forward < graph->n_nodes && graph->nodes[of->n_forward]->forward < 0)
    of->n_forward++;
  of->root = mem_new(n_values * sizeof *of->root);
  of->flows = mem_new(n_values * sizeof *of->flows);
  of->cost = mem_new(n_nodes * sizeof *of->cost);
  of->up = mem_new(n_nodes * sizeof *of->up);
  of->down = mem_new(n_nodes * sizeof *of->down);
  find_roots(of);
  find_flows(of);
  find_crossings(of);
  find_costs(of);
  liveness_plan(graph, &of->memory, &of->liveness);
}

static void estimator_fini(struct estimator *of) {
  free(of->root);
  free(of->flows);
  free(of->cost);
  free(of->up);
  free(of->down);
  arena_fini(&of->memory);
}

static const struct model_place *cut_place(const struct estimator *of, int cut) {
  return &of->wanted->places->list[of->wanted->cuts ? of->wanted->cuts[cut] : cut];
}

static int count_cuts(const struct estimator *of) {
  return of->wanted->cuts ? of->wanted->n_stages - 1 : of->wanted->places->n;
}

static void stage_cost(void *user, const struct stage_range *range, struct stage_estimate *out) {
  const struct estimator *of = user;
  bool is_last = range->end > count_cuts(of);
  int begin = range->begin ? cut_place(of, range->begin - 1)->train : 0;
  int end = is_last ? of->n_forward : cut_place(of, range->end - 1)->train;
  out->cost = of->cost[end] - of->cost[begin];
  if (begin > 0)
    out->cost += CROSSING_MOVES * (double)(of->up[begin] + of->down[begin]);
  if (!is_last)
    out->cost += CROSSING_MOVES * (double)(of->up[end] + of->down[end]);
}

/* A stage between nodes of both graphs. */
struct bounds {
  int begin, end, eval_begin, eval_end;
};

static bool has_home(const struct node *node, const struct bounds *bounds) {
  int home = node_home(node);
  return home >= bounds->begin && home < bounds->end;
}

/* Adds the initializers that the node reads and that are not in `seen` yet. */
static uint64_t new_weights(const struct graph *graph, const struct node *node, struct names *seen) {
  uint64_t bytes = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *value = node_input(graph, node, i);
    if (value && value->kind == VALUE_INITIALIZER && names_add(seen, value->name, 0))
      bytes += value_bytes(value);
  }
  return bytes;
}

static uint64_t weights_bytes(const struct estimator *of, const struct bounds *bounds) {
  const struct graph *eval = of->model->eval;
  struct names seen;
  uint64_t bytes = 0;
  names_init(&seen);
  for (int n = 0; n < of->graph->n_nodes; n++)
    if (has_home(of->graph->nodes[n], bounds))
      bytes += new_weights(of->graph, of->graph->nodes[n], &seen);
  for (int n = bounds->eval_begin; n < bounds->eval_end; n++)
    bytes += new_weights(eval, eval->nodes[n], &seen);
  names_fini(&seen);
  return bytes;
}

/* Events in the stage: what arrives from below, forward nodes, what arrives from above, gradient nodes. */
static void span_extend(struct memory_span *span, int event) {
  span->first = span->size_bytes == 0 || event < span->first ? event : span->first;
  span->last = span->size_bytes == 0 || event > span->last ? event : span->last;
}

/* Values that nodes of the stage read or write. spans: [n_values] of those in whose bytes they lie; of the
   others the size is 0. */
static void spans_of_nodes(const struct estimator *of, const struct bounds *bounds,
                           struct memory_span *spans) {
  for (int n = 0; n < of->graph->n_nodes; n++) {
    const struct node *node = of->graph->nodes[n];
    int n_values = node->n_inputs + node->n_outputs;
    for (int i = 0; i < n_values && has_home(node, bounds); i++) {
      int value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
      if (value < 0 || !is_flow(of, of->root[value]))
        continue;
      int owner = liveness_owner(&of->liveness, value);
      span_extend(&spans[owner], node->forward >= 0 ? n + 1 : n);
      spans[owner].size_bytes = value_bytes(&of->graph->values[owner]);
    }
  }
}

/* The same with what arrives, and what has to leave. */
static void spans_find(const struct estimator *of, const struct bounds *bounds, struct memory_span *spans) {
  spans_of_nodes(of, bounds, spans);
  for (int v = 0; v < of->graph->n_values; v++) {
    const struct flow *flow = &of->flows[v];
    struct memory_span *span = &spans[liveness_owner(&of->liveness, v)];
    bool is_above = flow->maker >= bounds->end, is_below = flow->maker < bounds->begin;
    bool is_up = flow->is_forward && flow->highest >= bounds->end, is_down = flow->lowest < bounds->begin;
    if (span->size_bytes == 0 || !is_flow(of, v) || flow->maker < 0)
      continue;
    if (is_below && flow->highest >= bounds->begin)
      span_extend(span, bounds->begin - 1);
    if (is_above && flow->lowest < bounds->end)
      span_extend(span, of->n_forward);
    if (is_up && !is_above)
      span_extend(span, bounds->end - 1);
    if (is_down && !is_below)
      span_extend(span, of->graph->n_nodes);
  }
}

static void find_activations(const struct estimator *of, const struct bounds *bounds,
                             struct model_stage *out) {
  size_t n_values = (size_t)of->graph->n_values;
  struct memory_span *spans = mem_new((n_values + 1) * sizeof *spans);
  int n = 0;
  spans_find(of, bounds, spans);
  for (size_t v = 0; v < n_values; v++)
    if (spans[v].size_bytes > 0) {
      if (spans[v].first < of->n_forward && spans[v].last > of->n_forward)
        out->saved_bytes += spans[v].size_bytes;
      spans[n++] = spans[v];
    }
  out->activations_bytes = memory_plan(spans, n);
  free(spans);
}

static void stage_fill(const struct estimator *of, const struct bounds *bounds, int stage,
                       struct model_stages *out) {
  struct model_stage *it = &out->list[stage];
  for (int n = bounds->begin; n < bounds->end; n++)
    it->multiply_adds += multiply_adds(of, of->graph->nodes[n]);
  it->train = bounds->begin;
  it->eval = bounds->eval_begin;
  it->n_nodes = bounds->end - bounds->begin;
  it->time_share = (of->cost[bounds->end] - of->cost[bounds->begin]) / of->cost[of->n_forward];
  it->weights_bytes = weights_bytes(of, bounds);
  find_activations(of, bounds, it);
  it->in_flight = out->n - stage;
  if (of->wanted->most_in_flight > 0 && it->in_flight > of->wanted->most_in_flight)
    it->in_flight = of->wanted->most_in_flight;
  it->memory_bytes =
      2 * it->weights_bytes + it->activations_bytes + (uint64_t)(it->in_flight - 1) * it->saved_bytes;
  if (stage + 1 < out->n) {
    it->up_bytes = of->up[bounds->end];
    it->down_bytes = of->down[bounds->end];
  }
}

static void stages_fill(const struct estimator *of, const struct stage_choice *choice,
                        struct model_stages *out) {
  struct bounds bounds = {0};
  *out = (struct model_stages){.n = choice->n_stages};
  out->list = mem_new((size_t)out->n * sizeof *out->list);
  for (int s = 0; s < out->n; s++) {
    const struct model_place *end = s + 1 < out->n ? cut_place(of, choice->cuts[s] - 1) : NULL;
    bounds.end = end ? end->train : of->n_forward;
    bounds.eval_end = end ? end->eval : of->model->eval->n_nodes;
    stage_fill(of, &bounds, s, out);
    bounds.begin = bounds.end;
    bounds.eval_begin = bounds.eval_end;
    if (end)
      out->list[s + 1].from = end->name;
  }
}

int model_stages_find(const struct model *model, const struct stages_wanted *wanted, struct model_stages *out,
                      struct err *err) {
  struct estimator of;
  struct stage_choice choice;
  *out = (struct model_stages){.n = 0};
  estimator_init(&of, model);
  of.wanted = wanted;
  const struct stage_question question = {
      .n_places = count_cuts(&of), .n_stages = wanted->n_stages, .estimate = stage_cost, .user = &of};
  if (!stages_choose(&question, &choice, err)) {
    stages_fill(&of, &choice, out);
    free(choice.cuts);
  }
  estimator_fini(&of);
  return err->code;
}

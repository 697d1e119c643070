/* Liveness: results that alias or overwrite their input share its bytes; a value lives from its producer to
   its last reader. */
#include "model/graph/liveness.h"

#include <stdlib.h>

#include "model/graph/memory_plan.h"
#include "model/graph/op.h"

static size_t value_bytes(const struct value *value) {
  return (size_t)shape_elems(&value->shape) * dtype_size(value->dtype);
}

static bool is_computed(const struct graph *graph, int value) {
  return graph->values[value].kind == VALUE_RESULT;
}

int liveness_owner(const struct liveness *liveness, int value) {
  while (liveness->owner[value] != value)
    value = liveness->owner[value];
  return value;
}

/* last[v]: the last node that reads the bytes of owner v; its producer where nobody does. */
static void find_last_readers(const struct graph *graph, const struct liveness *live, int *last) {
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        last[liveness_owner(live, node->inputs[i])] = n;
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0)
        last[liveness_owner(live, node->outputs[o])] = n;
  }
}

/* True if output 0 may be written over input 0: the node is the last reader of its bytes, through one input.
 */
static bool can_overwrite(const struct graph *graph, const struct liveness *live, const struct node *node,
                          const int *last) {
  const struct value *in = node_input(graph, node, 0), *out = node_output(graph, node, 0);
  int owner;
  if (!(node->op->flags & OP_INPLACE) || !in || !out)
    return false;
  owner = liveness_owner(live, node->inputs[0]);
  for (int i = 1; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0 && liveness_owner(live, node->inputs[i]) == owner)
      return false;
  return is_computed(graph, owner) && last[owner] == node->index && value_bytes(in) == value_bytes(out);
}

/* Lets results share the bytes of their input where the op's flags allow. */
static void share_bytes(const struct graph *graph, struct liveness *live, int *last) {
  for (int v = 0; v < graph->n_values; v++)
    live->owner[v] = v;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (node->op->flags & OP_ALIAS)
      live->owner[node->outputs[0]] = liveness_owner(live, node->inputs[0]);
  }
  find_last_readers(graph, live, last);
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (can_overwrite(graph, live, node, last)) {
      int owner = liveness_owner(live, node->inputs[0]), out = node->outputs[0];
      live->owner[out] = owner;
      last[owner] = last[out];
    }
  }
}

static void buffer_place(const struct graph *graph, struct liveness *live, const int *last) {
  struct memory_span *spans = mem_new((size_t)graph->n_values * sizeof *spans);
  int n = 0;
  for (int v = 0; v < graph->n_values; v++)
    if (is_computed(graph, v) && live->owner[v] == v)
      spans[n++] = (struct memory_span){
          .size_bytes = value_bytes(&graph->values[v]), .first = graph->values[v].producer, .last = last[v]};
  live->size_bytes = memory_plan(spans, n);
  n = 0;
  for (int v = 0; v < graph->n_values; v++)
    if (is_computed(graph, v) && live->owner[v] == v)
      live->offset[v] = spans[n++].offset;
  free(spans);
}

void liveness_plan(const struct graph *graph, struct arena *arena, struct liveness *out) {
  size_t n = (size_t)graph->n_values;
  int *last = mem_new(n * sizeof *last);
  out->owner = arena_new(arena, n * sizeof *out->owner);
  out->offset = arena_new(arena, n * sizeof *out->offset);
  share_bytes(graph, out, last);
  buffer_place(graph, out, last);
  free(last);
}

size_t graph_memory_bytes(const struct graph *graph) {
  struct liveness liveness;
  struct arena arena;
  arena_init(&arena);
  liveness_plan(graph, &arena, &liveness);
  arena_fini(&arena);
  return liveness.size_bytes;
}

/* Copies of a graph and the removal of what is not needed. */
#include <stdlib.h>

#include "model/graph/graph.h"

static struct node *node_clone(struct arena *arena, const struct node *node) {
  struct node *copy = arena_copy(arena, node, sizeof *node);
  copy->inputs = arena_copy(arena, node->inputs, (size_t)node->n_inputs * sizeof *node->inputs);
  copy->outputs = arena_copy(arena, node->outputs, (size_t)node->n_outputs * sizeof *node->outputs);
  return copy;
}

struct graph *graph_clone(const struct graph *graph) {
  struct graph *copy = graph_new();
  struct arena *arena = &copy->arena;
  copy->opset = graph->opset;
  copy->next_name = graph->next_name;
  copy->is_from_pytorch = graph->is_from_pytorch;
  copy->is_training = graph->is_training;
  for (int i = 0; i < graph->n_values; i++)
    graph_add_value(copy, graph->values[i]);
  for (int i = 0; i < graph->n_nodes; i++) {
    array_reserve((void **)&copy->nodes, &copy->nodes_capacity, i, sizeof(struct node *));
    copy->nodes[copy->n_nodes++] = node_clone(arena, graph->nodes[i]);
  }
  copy->n_inputs = graph->n_inputs;
  copy->inputs = arena_copy(arena, graph->inputs, (size_t)graph->n_inputs * sizeof *graph->inputs);
  copy->guards = arena_copy(arena, graph->guards, (size_t)graph->n_guards * sizeof *graph->guards);
  copy->n_guards = graph->n_guards;
  copy->n_outputs = graph->n_outputs;
  copy->outputs = arena_copy(arena, graph->outputs, (size_t)graph->n_outputs * sizeof *graph->outputs);
  return copy;
}

/* Nodes and values that the roots depend on; an unused output of a needed node stays with it. */
static void mark_needed(const struct graph *graph, const int *roots, int n_roots, bool *is_node_needed,
                        bool *is_value_needed) {
  for (int r = 0; r < n_roots; r++)
    if (roots[r] >= 0)
      is_value_needed[roots[r]] = true;
  for (int n = graph->n_nodes - 1; n >= 0; n--) {
    const struct node *node = graph->nodes[n];
    for (int o = 0; o < node->n_outputs; o++)
      is_node_needed[n] |= node->outputs[o] >= 0 && is_value_needed[node->outputs[o]];
    if (!is_node_needed[n])
      continue;
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0)
        is_value_needed[node->outputs[o]] = true;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0)
        is_value_needed[node->inputs[i]] = true;
    for (int g = node->guard; g; g = graph->guards[g - 1].outer)
      is_value_needed[graph->guards[g - 1].condition] = true;
  }
}

/* Renumbers a list of values; dropped ones leave it. Returns the new length. */
static int list_remap(int *list, int n, const int *map) {
  int kept = 0;
  for (int i = 0; i < n; i++)
    if (map[list[i]] >= 0)
      list[kept++] = map[list[i]];
  return kept;
}

static void nodes_compact(struct graph *graph, const bool *is_needed, const int *value_map) {
  int *node_map = mem_new((size_t)graph->n_nodes * sizeof *node_map);
  int kept = 0;
  for (int n = 0; n < graph->n_nodes; n++) {
    struct node *node = graph->nodes[n];
    node_map[n] = is_needed[n] ? kept : -1;
    if (!is_needed[n])
      continue;
    node->index = kept;
    node->forward = node->forward >= 0 ? node_map[node->forward] : -1;
    for (int i = 0; i < node->n_inputs; i++)
      node->inputs[i] = node->inputs[i] >= 0 ? value_map[node->inputs[i]] : -1;
    for (int o = 0; o < node->n_outputs; o++) {
      node->outputs[o] = node->outputs[o] >= 0 ? value_map[node->outputs[o]] : -1;
      if (node->outputs[o] >= 0)
        graph->values[node->outputs[o]].producer = kept;
    }
    graph->nodes[kept++] = node;
  }
  graph->n_nodes = kept;
  free(node_map);
}

int *graph_prune(struct graph *graph, const int *roots, int n_roots) {
  bool *is_node_needed = mem_new((size_t)graph->n_nodes);
  bool *is_value_needed = mem_new((size_t)graph->n_values);
  int *map = mem_new((size_t)graph->n_values * sizeof *map);
  int kept = 0;
  mark_needed(graph, roots, n_roots, is_node_needed, is_value_needed);
  for (int v = 0; v < graph->n_values; v++) {
    map[v] = is_value_needed[v] ? kept : -1;
    if (is_value_needed[v])
      graph->values[kept++] = graph->values[v];
  }
  graph->n_values = kept;
  for (int g = 0; g < graph->n_guards; g++)
    if (graph->guards[g].condition >= 0) /* else no node was left in that branch before */
      graph->guards[g].condition = map[graph->guards[g].condition];
  nodes_compact(graph, is_node_needed, map);
  graph->n_inputs = list_remap(graph->inputs, graph->n_inputs, map);
  graph->n_outputs = list_remap(graph->outputs, graph->n_outputs, map);
  free(is_node_needed);
  free(is_value_needed);
  return map;
}

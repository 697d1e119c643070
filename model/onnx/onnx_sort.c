/* Topological order. */
#include <stdlib.h>

#include "model/graph/op.h"
#include "model/onnx/onnx_parts.h"

enum mark { MARK_NEW, MARK_OPEN, MARK_DONE };

/* A node on the path that is being followed, and the next of its inputs, then guards, to look at. */
struct step {
  int node, input, guard;
};

struct sorter {
  struct graph *graph;
  struct node **sorted;
  int n_sorted;
  unsigned char *marks;
  struct step *path;
  int depth;
};

/* The nodes of the path from `node` to its end, which reads `node` again. */
static int cycle_error(const struct sorter *sorter, int node, struct err *err) {
  struct listing cycle = {0};
  int from = 0;
  while (sorter->path[from].node != node)
    from++;
  for (int i = from; i < sorter->depth; i++)
    listing_add(&cycle, "'%s' (%s)", sorter->graph->nodes[sorter->path[i].node]->name,
                sorter->graph->nodes[sorter->path[i].node]->op->name);
  return err_set(err, ERR_INVALID, "%d node%s in a cycle: %s", cycle.count,
                 cycle.count == 1 ? " reads itself" : "s read each other", listing_text(&cycle));
}

static void open_node(struct sorter *sorter, int node) {
  sorter->marks[node] = MARK_OPEN;
  sorter->path[sorter->depth++] = (struct step){node, 0, sorter->graph->nodes[node]->guard};
}

/* The next value that the node waits for: an input, or the condition of a branch in which it stands. */
static int next_value(const struct graph *graph, const struct node *node, struct step *step) {
  const struct guard *guard;
  if (step->input < node->n_inputs)
    return node->inputs[step->input++];
  guard = &graph->guards[step->guard - 1];
  step->guard = guard->outer;
  return guard->condition;
}

/* Emits the nodes that `root` depends on, depth first, then root. */
static int node_visit(struct sorter *sorter, int root, struct err *err) {
  struct graph *graph = sorter->graph;
  open_node(sorter, root);
  while (sorter->depth) {
    struct step *step = &sorter->path[sorter->depth - 1];
    struct node *node = graph->nodes[step->node];
    int value, producer;
    if (step->input == node->n_inputs && step->guard == 0) {
      sorter->marks[step->node] = MARK_DONE;
      sorter->sorted[sorter->n_sorted++] = node;
      sorter->depth--;
      continue;
    }
    value = next_value(graph, node, step);
    producer = value >= 0 ? graph->values[value].producer : -1;
    if (producer < 0 || sorter->marks[producer] == MARK_DONE)
      continue;
    if (sorter->marks[producer] == MARK_OPEN)
      return cycle_error(sorter, producer, err);
    open_node(sorter, producer);
  }
  return 0;
}

static void take_order(struct graph *graph, struct node **sorted) {
  for (int n = 0; n < graph->n_nodes; n++) {
    struct node *node = graph->nodes[n] = sorted[n];
    node->index = n;
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0)
        graph->values[node->outputs[o]].producer = n;
  }
}

int onnx_nodes_sort(struct graph *graph, struct err *err) {
  size_t n = (size_t)graph->n_nodes;
  struct sorter sorter = {.graph = graph,
                          .sorted = mem_new(n * sizeof *sorter.sorted),
                          .marks = mem_new(n),
                          .path = mem_new(n * sizeof *sorter.path)};
  int code = 0;
  for (int i = 0; i < graph->n_nodes && !code; i++)
    if (sorter.marks[i] == MARK_NEW)
      code = node_visit(&sorter, i, err);
  if (!code)
    take_order(graph, sorter.sorted);
  free(sorter.sorted);
  free(sorter.marks);
  free(sorter.path);
  return code;
}

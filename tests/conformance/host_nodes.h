/* Which nodes a backend of a device may leave to the host, and why: each costs a copy there and back, and
   everything waits. An op that has no kernel and is not listed here fails the suites. */
#ifndef WEIR_TESTS_CONFORMANCE_HOST_NODES_H
#define WEIR_TESTS_CONFORMANCE_HOST_NODES_H

#include <stdio.h>
#include <string.h>

#include "worker/backend/backend.h"
#include "worker/backend/node.h"

struct host_reason {
  const char *op, *why;
  /* For which nodes; NULL: all of the op. */
  bool (*holds)(const struct graph *graph, const struct node *node);
  bool is_of_vectors; /* only ONNX's vectors have such nodes */
};

static inline bool host_axis_is_fed(const struct graph *graph, const struct node *node) {
  return node_input(graph, node, 1)->kind != VALUE_CONSTANT;
}

static inline bool host_updates_statistics(const struct graph *graph, const struct node *node) {
  (void)graph;
  return node->n_outputs > 1;
}

static inline bool host_has_integer_base(const struct graph *graph, const struct node *node) {
  return node_input(graph, node, 0)->dtype != DTYPE_F32 && node_input(graph, node, 1)->dtype == DTYPE_F32;
}

static inline bool host_has_bias_of_another_shape(const struct graph *graph, const struct node *node) {
  const struct value *bias = node_input(graph, node, 2);
  return bias && !shape_is_same(&node_input(graph, node, 1)->shape, &bias->shape);
}

static inline bool host_alternates(const struct graph *graph, const struct node *node) {
  return node_input(graph, node, 0)->shape.rank > 3;
}

/* What follows from shapes and constants; the cases here have it all the same. */
#define HOST_FOLDED "the loader has folded it"
#define HOST_SIGNALS "signals are transformed before they are trained on"

static const struct host_reason host_reasons[] = {
    {.op = "BatchNormalization",
     .why = "the loader makes BatchNormTraining of it",
     .holds = host_updates_statistics,
     .is_of_vectors = true},
    {.op = "BlackmanWindow", .why = HOST_FOLDED},
    {.op = "ConstantOfShape", .why = HOST_FOLDED},
    {.op = "CumSum", .why = "exporters write the axis as a constant", .holds = host_axis_is_fed},
    {.op = "DFT", .why = HOST_SIGNALS},
    {.op = "DFTGrad", .why = HOST_SIGNALS},
    {.op = "Det", .why = "matrices whose determinants are trained on are small and few"},
    {.op = "DetGrad", .why = "matrices whose determinants are trained on are small and few"},
    {.op = "EyeLike", .why = HOST_FOLDED},
    {.op = "HammingWindow", .why = HOST_FOLDED},
    {.op = "HannWindow", .why = HOST_FOLDED},
    {.op = "LayerNormalization",
     .why = "exporters write scale and bias of one shape",
     .holds = host_has_bias_of_another_shape},
    {.op = "NonZero", .why = HOST_FOLDED},
    {.op = "Pow",
     .why = "of integers to real powers, which models do not have",
     .holds = host_has_integer_base},
    {.op = "Range", .why = HOST_FOLDED},
    {.op = "STFT", .why = HOST_SIGNALS},
    {.op = "STFTGradSignal", .why = HOST_SIGNALS},
    {.op = "STFTGradWindow", .why = HOST_SIGNALS},
    {.op = "Shape", .why = HOST_FOLDED},
    {.op = "Size", .why = HOST_FOLDED},
    {.op = "SumTo",
     .why = "of dimensions that alternate with others more than twice",
     .holds = host_alternates},
};

enum { HOST_REASONS = sizeof host_reasons / sizeof host_reasons[0] };

static struct {
  int n, strays;
  bool met[HOST_REASONS];
} host_nodes;

static inline bool host_node_is_listed(const struct graph *graph, const struct node *node) {
  for (size_t i = 0; i < HOST_REASONS; i++)
    if (strcmp(host_reasons[i].op, node->op->name) == 0 &&
        (!host_reasons[i].holds || host_reasons[i].holds(graph, node)))
      return host_nodes.met[i] = true;
  return false;
}

/* A node with a tensor without elements is nothing that a kernel is written for; but of what is known, an
   empty one may say that there are no axes. */
static inline bool host_node_is_empty(const struct graph *graph, const struct node *node) {
  bool is_empty = !node_has_elements(graph, node, 0);
  for (int i = 0; i < node->n_inputs; i++)
    is_empty |= node->inputs[i] >= 0 && !node_input(graph, node, i)->data &&
                shape_elems(&node_input(graph, node, i)->shape) == 0;
  return is_empty;
}

/* Counts the program's nodes on the host, and tells of those that are not listed. */
static inline void host_nodes_note(const struct backend_def *backend, const struct backend_program *program,
                                   const struct graph *graph) {
  const struct node *node;
  for (int i = 0; backend->host_node && (node = backend->host_node(program, i)); i++) {
    if (host_node_is_empty(graph, node))
      continue;
    host_nodes.n++;
    if (host_node_is_listed(graph, node))
      continue;
    host_nodes.strays++;
    printf("# %s runs on the host, and no reason is listed:", node->op->name);
    for (int v = 0; v < node->n_inputs + node->n_outputs; v++) {
      int value = v < node->n_inputs ? node->inputs[v] : node->outputs[v - node->n_inputs];
      char text[128];
      if (value >= 0)
        printf("%s %s%s", v == node->n_inputs ? " ->" : "", dtype_name(graph->values[value].dtype),
               shape_text(&graph->values[value].shape, text, sizeof text));
    }
    putchar('\n');
  }
}

#endif

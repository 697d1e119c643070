/* Where the values that a graph computes lie in one block of memory: which share bytes, and how long each
   lives. What a backend of dense tensors allocates, and what others need about. */
#ifndef WEIR_MODEL_GRAPH_LIVENESS_H
#define WEIR_MODEL_GRAPH_LIVENESS_H

#include "model/graph/graph.h"

struct liveness {
  int *owner;     /* [n_values] the value whose bytes it shares (aliases, in-place results), or itself */
  size_t *offset; /* [n_values] of an owner that a node computes: in the block */
  size_t size_bytes;
};

/* Plans the graph, whose shapes are inferred. The arrays are the arena's. */
void liveness_plan(const struct graph *graph, struct arena *arena, struct liveness *out);

/* The value in whose bytes this one lies. */
int liveness_owner(const struct liveness *liveness, int value);

/* liveness.size_bytes, without the plan. */
size_t graph_memory_bytes(const struct graph *graph);

#endif

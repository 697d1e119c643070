/* The places of a graph's values in one block of memory: which values share bytes, and how long each lives. A
   backend of dense tensors allocates by it; others estimate memory by it. */
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

/* Runs a graph with the ops' reference kernels, node after node; every value has memory of its own. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_GRAPH_RUN_H
#define WEIR_TESTS_SUPPORT_MODEL_GRAPH_RUN_H

#include "model/graph/graph.h"

/* data[v] is the dense bytes of value v, one entry for each of the graph's values. Entries that the caller
   sets (inputs, weights) are read. NULL entries are filled: with the graph's own bytes where it has them,
   else with memory of the arena, which the run computes. Returns the first error of a kernel. */
int graph_run(const struct graph *graph, void **data, struct arena *arena, struct err *err);

#endif

/* Runs a graph with the ops' reference kernels, for tests: every value has memory of its own. */
#ifndef WEIR_TESTS_SUPPORT_GRAPH_RUN_H
#define WEIR_TESTS_SUPPORT_GRAPH_RUN_H

#include <stdlib.h>

#include "model/graph/op.h"

/* data[v]: the bytes of each value. Those that the caller set are kept, the others are made here: known data
   as it is, results computed. Returns the first error. Memory is the arena's. */
int graph_run(const struct graph *graph, void **data, struct arena *arena, struct err *err);

#endif

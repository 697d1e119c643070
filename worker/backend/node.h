/* Questions about a node that backends which build programs ask before they prepare it. */
#ifndef WEIR_WORKER_BACKEND_NODE_H
#define WEIR_WORKER_BACKEND_NODE_H

#include "model/graph/graph.h"

/* Checks the sizes of a node. Errors: UNSUPPORTED for more inputs or outputs than a program takes, INVALID
   for a result whose shape is not known, NO_MEMORY for one that no machine could hold: so sums of a few sizes
   do not overflow. */
int node_check(const struct graph *graph, const struct node *node, struct err *err);

/* True if none of its outputs and first n_inputs inputs that are there is empty. */
bool node_has_elements(const struct graph *graph, const struct node *node, int n_inputs);

/* True if its one result is its first input's bytes under another shape. */
bool node_is_alias(const struct node *node);

#endif

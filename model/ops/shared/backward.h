/* What the backward functions of several ops share: short ways to add nodes. */
#ifndef WEIR_MODEL_OPS_SHARED_BACKWARD_H
#define WEIR_MODEL_OPS_SHARED_BACKWARD_H

#include "model/graph/op.h"

/* Add a node with one output and no attributes; return its value. */
int backward_unary(struct graph *graph, const char *op, int x);
int backward_binary(struct graph *graph, const char *op, int a, int b);

/* Adds a node of one of our ops with attributes; returns output 0's value. */
int backward_node(struct graph *graph, const char *op, struct value_list inputs, struct attr_list attrs);

int backward_reshape(struct graph *graph, int x, const struct shape *shape);
int backward_sum_to(struct graph *graph, int x,
                    const struct shape *shape); /* x itself if it has that shape */
int backward_broadcast_to(struct graph *graph, int x, const struct shape *shape);
int backward_scale(struct graph *graph, int x, float factor);

/* The value of an optional output of the forward node, which computes it from now on even if the model does
   not ask for it. */
int backward_keep(struct graph *graph, const struct node *node, int output);

/* Takes those outputs off the node that was added last which are not wanted, so that it need not compute
 * them. */
void backward_keep_wanted(struct graph *graph, struct node *node, const bool *is_wanted);

/* Hands `grad`, of the output's shape, to input i, whose shape was broadcast to the output's. */
void backward_add_summed(struct autodiff *ad, struct graph *graph, const struct node *node, int input,
                         int grad);

/* Attributes for graph_add_node, which copies them: `values` need only live until then. */
struct attr attr_of_int(const char *name, int64_t value);
struct attr attr_of_float(const char *name, float value);
struct attr attr_of_ints(const char *name, const int64_t *values, int n);
struct attr attr_of_shape(const struct shape *shape); /* "shape" */

#endif

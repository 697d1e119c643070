/* Reverse-mode differentiation: adds to a graph the nodes that compute the gradients of a scalar. */
#ifndef WEIR_MODEL_GRAPH_AUTODIFF_H
#define WEIR_MODEL_GRAPH_AUTODIFF_H

#include "model/graph/graph.h"

struct autodiff;

/* For an op's backward function. The gradient of output i of the node: a value index, or -1 when nothing
   depends on it (at least one output has one). Same shape as the output. */
int autodiff_grad(const struct autodiff *ad, const struct node *node, int output);
/* True if the gradient of input i is needed: it is f32 and leads back to something in `wanted`. */
bool autodiff_wants(const struct autodiff *ad, const struct node *node, int input);
/* Contributes `grad` (same shape as the input) to input i's gradient; several contributions are added in the
   order in which they come. */
void autodiff_add(struct autodiff *ad, const struct node *node, int input, int grad);

/* What is differentiated: sum(roots[r] * seeds[r]), of n_roots (seeds: values of the roots' shapes), with
   respect to every value i with wanted[i]. */
struct derivative {
  const int *roots, *seeds;
  int n_roots;
  const bool *wanted;
};

/* grads[i] becomes the value index of its gradient, -1 where none flows (array of the number
   of values before the call). New nodes are appended behind the forward nodes, in backward order: gradients
   of the last layers come first. Errors: UNSUPPORTED, naming every node without a gradient in the path. */
int autodiff_run(struct graph *graph, const struct derivative *derivative, int *grads, struct err *err);

#endif

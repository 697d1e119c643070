/* Fusions: rows of fusion.def. A fusion recognises what exporters decompose an operator into and puts one
   node in its place, where that is faster or needs less memory. */
#ifndef WEIR_MODEL_FUSIONS_FUSE_H
#define WEIR_MODEL_FUSIONS_FUSE_H

#include "model/graph/graph.h"

/* A graph while nodes are fused. */
struct fuse {
  struct graph *graph;
  int *readers;    /* [n_values] nodes that read it, once per input; outputs of the graph count */
  bool *is_weight; /* [n_values] f32 that depends on an initializer: it may lead back to trained weights */
  int n_values;
};

struct fusion_def {
  const char *name;
  const char *op; /* of the last node of the pattern */
  /* Fuses the nodes that end in `node`. False, with nothing changed: they are not the pattern. */
  bool (*apply)(struct fuse *fuse, struct node *node);
};

/* Applies every fusion to every node, in node order. Shapes are inferred before and after. The nodes that
   were replaced stay, for graph_prune to drop. */
void graph_fuse(struct graph *graph);

/* For fusions. The node that computes the value, if it is of that op, standard or ours; else NULL. */
struct node *fuse_producer(const struct fuse *fuse, int value, const char *op);
/* The same, if nothing else reads its result. */
struct node *fuse_sole_producer(const struct fuse *fuse, int value, const char *op);

/* The number in a value of one f32 element that is known at load and not a weight. */
bool fuse_scalar(const struct fuse *fuse, int value, double *number);
bool fuse_is_near(double number, double expected); /* as an exporter writes a constant: to 1e-4 relative */

/* Takes a product of two apart: *other is what is multiplied with a known number. False if it has none. */
bool fuse_scaled(const struct fuse *fuse, const struct node *product, int *other, double *number);

/* Makes `node` one of our table's ops on other inputs, with the first of its outputs. Attributes are copied.
 */
void fuse_become(struct fuse *fuse, struct node *node, const char *op, struct value_list inputs,
                 struct attr_list attrs);

#endif

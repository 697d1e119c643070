/* Losses: rows of loss.def. A loss turns a graph's output and labels into a sum over samples. */
#ifndef WEIR_COMMON_GRAPH_LOSS_H
#define WEIR_COMMON_GRAPH_LOSS_H

#include "common/graph/graph.h"

/* Scalars (f32, shape []) of one microbatch. */
struct loss_values {
  int loss_sum; /* over its samples: what is differentiated, times 1 / the step's samples */
  int correct;  /* samples whose greatest output is the label; -1 for losses without classes */
};

struct loss_def {
  const char *name;
  /* Adds the nodes to a graph whose shapes are inferred. output, labels: value indices; labels is a fed input
     i64[batch]. Errors: INVALID when the output's shape is not one that the loss takes (named). */
  int (*attach)(struct graph *graph, int output, int labels, struct loss_values *values, struct err *err);
};

const struct loss_def *loss_find(const char *name); /* NULL if unknown */
const char *loss_names(void);                       /* "cross_entropy, ..." for messages */

#endif

/* Activations that backends compute along with what comes before them. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_FUSED_ACTIVATION_H
#define WEIR_WORKER_BACKEND_FUSED_ACTIVATION_H

#include <stdbool.h>

struct graph;
struct node;

enum fused_activation_kind { FUSED_NONE, FUSED_RELU, FUSED_CLIP };

/* low and high: of CLIP, infinite where there is no bound. */
struct fused_activation {
  enum fused_activation_kind kind;
  float low, high;
};

/* What the node is: ReLU or Clip of bounds that are known before the run. False, with kind NONE: another. */
bool fused_activation_read(const struct graph *graph, const struct node *node,
                           struct fused_activation *activation);
/* The same of the node that computes the gradient of one: dy, y -> dx. */
bool fused_activation_read_gradient(const struct graph *graph, const struct node *node,
                                    struct fused_activation *activation);

#endif

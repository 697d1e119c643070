/* Which nodes are done along with a batch norm: those behind it while its result is written, and those before
   its gradient while the gradient is read. Alone, each would be a pass over memory. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_FUSION_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_FUSION_H

#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/cuda/rows/norm.h"

/* Behind a BatchNormTraining or BatchNormalization: an Add, and ReLU or Clip. The fusion ends at a value that
   another node reads, too. */
struct cuda_norm_fusion {
  struct fused_activation activation;
  int residual;          /* value; -1: none */
  int out;               /* value that is written */
  int nodes[2], n_nodes; /* later nodes that are done by it: indices */
};

struct cuda_norm_fusion cuda_norm_fusion_find(const struct backend_program *program, const struct node *node);

/* Before a BatchNormGrad: the gradient of ReLU or Clip, and before that a sum of two. Values; -1: none. */
struct cuda_norm_grad_fusion {
  struct fused_activation activation;
  int dy, addend;
  int y;      /* the activation's output, which is read, or with `bias` computed again */
  int bias;   /* of the norm */
  int masked; /* what the norm's gradient is made of, which is written */
};

/* Decides for every BatchNormGrad before any node is prepared, because the nodes that it does the work of
   come earlier. A value that is read later than in the graph lives until then. */
void cuda_norm_grads_survey(struct backend_program *program);

#endif

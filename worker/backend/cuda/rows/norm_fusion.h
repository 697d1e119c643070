/* What follows a batch norm and can be done while it is written, and what comes before its gradient and can
   be done while that is read: nodes that would be a pass over memory each. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_FUSION_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_FUSION_H

#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/cuda/rows/norm.h"

/* Of a BatchNormTraining or BatchNormalization: an Add, and ReLU or Clip. A value between them that anybody
   else reads ends it. */
struct cuda_norm_fusion {
  struct cuda_activation activation;
  int residual;          /* value; -1: none */
  int out;               /* value that is written */
  int nodes[2], n_nodes; /* later nodes that are done by it: indices */
};

struct cuda_norm_fusion cuda_norm_fusion_find(const struct backend_program *program, const struct node *node);

/* Of a BatchNormGrad: the gradient of ReLU or Clip and, before it, a sum of two gradients. Values; -1: none.
 */
struct cuda_norm_grad_fusion {
  struct cuda_activation activation;
  int dy, addend;
  int y;      /* the activation's output, which is read, or with `bias` computed again */
  int bias;   /* of the norm */
  int masked; /* what the norm's gradient is made of, which is written */
};

/* Decides for all of them, before any node is prepared, because the nodes that they do the work of come
   earlier; what is read later than the graph has it lives so long. */
void cuda_norm_grads_survey(struct backend_program *program);

#endif

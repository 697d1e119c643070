/* A loss of each element against its target, summed, and its gradient (model/ops/element_loss.c). */
#ifndef WEIR_WORKER_BACKEND_CUDA_LOSS_ELEMENT_LOSS_H
#define WEIR_WORKER_BACKEND_CUDA_LOSS_ELEMENT_LOSS_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/loss/class_rows.h"

enum cuda_element_kind {
  ELEMENT_MSE,
  ELEMENT_L1,
  ELEMENT_SMOOTH_L1,
  ELEMENT_HUBER,
  ELEMENT_BCE_WITH_LOGITS,
  ELEMENT_KL_DIV,
  ELEMENT_KL_DIV_LOG,
};

struct cuda_element_loss {
  enum cuda_element_kind kind;
  struct cuda_tensor x, target;
  struct cuda_tensor gradient; /* of x's shape; absent: the loss is wanted */
  const float *weights;        /* element i has weights[i / inner % n]; NULL: 1 */
  struct cuda_divisor by_inner, by_weights;
  float parameter;
  const float *dsum; /* the gradient's factor */
  double *sums;      /* [blocks][CLASS_SUMS], of which the first is the loss, for cuda_loss_sums_launch */
  int64_t elems, blocks;
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_element_loss_launch(const struct cuda_element_loss *loss, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

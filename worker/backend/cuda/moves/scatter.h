/* Rows put into a tensor at places that indices name, in an order that is always the same, and the gradients
   of that. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_SCATTER_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_SCATTER_H

#include "worker/backend/cuda/moves/places.h"

enum cuda_scatter {
  SCATTER_FIRST, /* what the rows sum up to, for a target of zeros */
  SCATTER_ADD,
  SCATTER_MUL,
  SCATTER_MIN,
  SCATTER_MAX,
  SCATTER_LAST, /* the last of them replaces what was there */
};

/* Joins the rows of `updates` of each place with what `to` has there, both F32 or BF16, or both of one type
   of integers. */
struct cuda_scattering {
  enum cuda_scatter how;
  int64_t rows, run;            /* of the updates: how many, and of how many elements */
  const uint32_t *keys, *order; /* as sorted */
  struct cuda_tensor updates, to;
};

/* Of y = data, into which updates were scattered: dy -> d_data, d_updates. data, updates and y, of one type,
   are there for products and extremes, products being of no less than F32. */
struct cuda_scatter_grad {
  enum cuda_scatter how; /* _MUL, _MIN, _MAX or _LAST */
  int64_t rows, run;
  const uint32_t *keys, *order; /* as sorted */
  struct cuda_tensor dy, data, updates, y, d_data, d_updates;
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_scatter_launch(const struct cuda_scattering *scattering, cudaStream_t stream);
void cuda_scatter_grad_launch(const struct cuda_scatter_grad *grad, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif

/* Batch norm of elements, once the means and deviations of the channels are known. The forward pass also adds
   a residual and takes ReLU or Clip; the backward pass begins with the gradient of those. Read by C and CUDA
   C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_NORM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"
#include "worker/backend/fused_activation.h"

/* Element i (of the bytes) belongs to channel i / inner % channels. */
struct cuda_channels {
  int64_t elems;
  struct cuda_divisor inner, channels;
};

/* y = activation(norm(x) + residual), where norm(x) = (x - mean) (inv_std scale) + bias */
struct cuda_norm {
  struct cuda_channels channels;
  struct cuda_tensor x, residual, y; /* residual: absent, or of x's shape and layout */
  const float *mean, *inv_std, *scale, *bias;
  const float *variance; /* in place of inv_std, which is NULL then: 1 / sqrt(variance + epsilon) */
  float epsilon;
  struct fused_activation activation;
};

/* How the gradient of activation(norm(x) + residual) becomes one of the norm: dy + addend where the
   activation lets it through, 0 elsewhere. The activation's output y tells where that is. */
struct cuda_masking {
  struct fused_activation activation;
  struct cuda_tensor addend; /* absent: none */
  struct cuda_tensor y;      /* absent where it is computed again */
  const float *bias;         /* not NULL: y = activation(norm(x)) is computed again */
  bool is_rounded;           /* it was kept as BF16 */
  struct cuda_tensor masked; /* where the result is written; absent: nowhere */
};

/* dx = scale inv_std (dy - dbias / n - (x - mean) inv_std dscale / n), with n elements a channel. */
struct cuda_norm_grad {
  struct cuda_channels channels;
  struct cuda_tensor x, dy, dx;
  const float *mean, *inv_std, *scale, *dscale, *dbias;
  int64_t n;
  struct cuda_masking masking; /* of dy; its y, if any, is computed again, and no addend is there */
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_norm_launch(const struct cuda_norm *norm, cudaStream_t stream);
void cuda_norm_grad_launch(const struct cuda_norm_grad *grad, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif

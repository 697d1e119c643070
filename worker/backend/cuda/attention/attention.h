/* Launchers of attention.cu: ScaledAttention and its gradient (model/ops/scaled_attention.h) without ever
   holding the scores: tiles of them, softmax as it goes, weights computed again in the gradient. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `stack` times: query [t, d], key [d, s], value [s, e], dense. */
struct cuda_attention {
  int64_t stack, t, s, d, e;
  float scale;
  int64_t diagonal; /* columns beyond row + diagonal are hidden; s: none is */
  /* Element (i, j) of the mask of matrix m: what m, as an index into lead_dim, adds, and i * mask_row + j *
     mask_column. */
  int lead;
  int64_t lead_dim[CUDA_RANK_MAX], lead_stride[CUDA_RANK_MAX], mask_row, mask_column;
};

/* mask.data, log_sums NULL: absent. log_sums f32 [stack, t]. */
void cuda_attention_launch(const struct cuda_attention *attention, struct cuda_tensor query,
                           struct cuda_tensor key, struct cuda_tensor value, struct cuda_tensor mask,
                           struct cuda_tensor y, float *log_sums, cudaStream_t stream);

struct cuda_attention_grad {
  struct cuda_tensor dy, query, key, value, y, mask;
  const float *log_sums;
  float *along; /* scratch [stack, t] */
  struct cuda_tensor dquery, dkey, dvalue;
};

/* The same bits every time: each result is summed by one block, in order. */
void cuda_attention_grad_launch(const struct cuda_attention *attention,
                                const struct cuda_attention_grad *grad, cudaStream_t stream);

/* For matrices [index, index + n) of the stack, whose products with queries lie in `scores` [n, t, s] as f32.
   They become softmax's weights in `weights` (of any type), and log_sums (NULL: not wanted) is set. */
void cuda_attention_softmax_launch(const struct cuda_attention *attention, int64_t index, int64_t n,
                                   const float *scores, struct cuda_tensor mask, struct cuda_tensor weights,
                                   float *log_sums, cudaStream_t stream);

/* The weights again, and from d_weights [n, t, s] the gradients of the products; along: as below. */
void cuda_attention_weigh_launch(const struct cuda_attention *attention, int64_t index, int64_t n,
                                 const float *scores, const float *d_weights,
                                 const struct cuda_attention_grad *grad, struct cuda_tensor weights,
                                 struct cuda_tensor d_scores, cudaStream_t stream);

/* grad->along = dy . y of each row. */
void cuda_attention_along_launch(const struct cuda_attention *attention,
                                 const struct cuda_attention_grad *grad, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

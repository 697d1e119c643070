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

/* The tensors of attention and of its gradient. mask.data, log_sums NULL: absent. */
struct cuda_attention_io {
  struct cuda_tensor dy, query, key, value, y, mask;
  float *log_sums; /* [stack, t]: made with y, read by the gradient */
  float *along;    /* scratch of the gradient [stack, t] */
  struct cuda_tensor dquery, dkey, dvalue;
};

/* query, key, value, mask -> y, log_sums */
void cuda_attention_launch(const struct cuda_attention *attention, const struct cuda_attention_io *io,
                           cudaStream_t stream);

/* dy, query, key, value, y, mask, log_sums -> dquery, dkey, dvalue. The same bits every time: each result is
   summed by one block, in order. */
void cuda_attention_grad_launch(const struct cuda_attention *attention, const struct cuda_attention_io *io,
                                cudaStream_t stream);

/* What lies of matrices [index, index + n) of the stack: [n, t, s] each. */
struct cuda_attention_group {
  int64_t index, n;
  float *scores;              /* products of queries and keys */
  float *d_weights;           /* the gradients of softmax's weights */
  struct cuda_tensor weights; /* softmax's, of any type */
  struct cuda_tensor d_scores;
};

/* scores, io->mask -> weights, io->log_sums */
void cuda_attention_softmax_launch(const struct cuda_attention *attention,
                                   const struct cuda_attention_group *group,
                                   const struct cuda_attention_io *io, cudaStream_t stream);

/* scores, d_weights, io->mask, io->log_sums, io->along -> weights again, d_scores */
void cuda_attention_weigh_launch(const struct cuda_attention *attention,
                                 const struct cuda_attention_group *group, const struct cuda_attention_io *io,
                                 cudaStream_t stream);

/* io->along = dy . y of each row. */
void cuda_attention_along_launch(const struct cuda_attention *attention, const struct cuda_attention_io *io,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

/* One time that attention is enqueued by a library's calls. */
struct attention_call {
  const struct node *node; /* for whom; NULL: for none */
  void *scratch;           /* of as many bytes as the library's plan says */
  cudaStream_t stream;
};

#endif

/* Launchers of matrix.cu: what surrounds matrix products and convolutions. */
#ifndef WEIR_WORKER_BACKEND_CUDA_PRODUCT_MATRIX_H
#define WEIR_WORKER_BACKEND_CUDA_PRODUCT_MATRIX_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* beta * c, where c is seen as a matrix whose element (i, j) is at i * row_stride + j * column_stride. */
struct cuda_addend {
  struct cuda_tensor c;
  int64_t rows, columns, row_stride, column_stride;
  float beta;
};
/* out += addend, out dense [rows, columns]. */
void cuda_add_scaled_launch(struct cuda_tensor out, const struct cuda_addend *addend, cudaStream_t stream);

/* out[o, c, i] += bias[c] of out seen as [outer, channels, inner]; bias f32. */
void cuda_add_channels_launch(struct cuda_tensor out, const float *bias, int64_t channels, int64_t inner,
                              cudaStream_t stream);

/* A tensor seen as [outer, channels, inner]. */
struct cuda_channel_view {
  int64_t outer, channels, inner;
};
/* sums[c] = the sum of x[o, c, i], in one order whatever the device. partials: cuda_channel_sums_bytes. */
size_t cuda_channel_sums_bytes(struct cuda_channel_view as);
void cuda_channel_sums_launch(struct cuda_tensor x, struct cuda_channel_view as, float *partials, float *sums,
                              cudaStream_t stream);

/* sums[i] = partials[0][i] + partials[1][i] + ..., of `chunks` times n. */
void cuda_add_chunks_launch(const float *partials, int64_t n, int64_t chunks, float *sums,
                            cudaStream_t stream);

/* A walk over up to CUDA_WALK_MAX dimensions of two f32 tensors, strides in elements: the first `kept` are
   those of `to`, over the others `from` is summed. */
enum { CUDA_WALK_MAX = 16 };
struct cuda_walk {
  int rank, kept;
  int64_t dim[CUDA_WALK_MAX], from[CUDA_WALK_MAX], to[CUDA_WALK_MAX];
};
void cuda_walk_sum_launch(struct cuda_walk walk, struct cuda_tensor from, struct cuda_tensor to,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

/* Convolutions of 1 to 3 spatial dimensions: their geometry, and the launchers of conv.cu. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_CONV_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_CONV_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_CONV_DIMS = 3 };

/* x [n, groups * group_in, in...], w [groups * group_out, group_in, kernel...] -> y [n, groups * group_out,
   out...]. Missing leading dimensions have size 1. Tensors are DENSE or CHANNELS_LAST as they say. */
struct cuda_conv {
  int dims; /* of the model's, 1 to 3 */
  int64_t n, groups, group_in, group_out;
  int64_t in[CUDA_CONV_DIMS], out[CUDA_CONV_DIMS], kernel[CUDA_CONV_DIMS];
  int64_t stride[CUDA_CONV_DIMS], dilation[CUDA_CONV_DIMS], pad[CUDA_CONV_DIMS]; /* pad: in front */
  int64_t in_elems, out_elems, taps;
};

/* The tensors of a convolution, or their gradients. w is dense, its gradient f32. */
struct cuda_conv_io {
  struct cuda_tensor x, w, y;
  const float *bias; /* f32, added to the result; NULL: none */
};

/* By plain loops, a thread for each result. x, w -> y; dy, w -> dx. */
void cuda_conv_forward_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io,
                              cudaStream_t stream);
void cuda_conv_data_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io, cudaStream_t stream);
/* x, dy -> dw, in one order whatever the device; partials: cuda_conv_weight_bytes. No bias. */
size_t cuda_conv_weight_bytes(const struct cuda_conv *conv);
void cuda_conv_weight_launch(const struct cuda_conv *conv, const struct cuda_conv_io *io, float *partials,
                             cudaStream_t stream);

/* to[n, c, p] = from[n, c, p + shift], 0 where that is outside; dim [n, c, d0, d1, d2] in both. */
void cuda_shift_launch(struct cuda_tensor from, struct cuda_tensor to, const int64_t shift[CUDA_CONV_DIMS],
                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

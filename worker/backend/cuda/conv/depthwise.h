/* Depthwise convolutions, a filter for each channel, over rows and columns of tensors with channels last.
   They have little arithmetic: a thread takes neighbouring channels and neighbouring windows, so that what it
   loads serves several of them, and numbers of elements are ints. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_DEPTHWISE_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_DEPTHWISE_H

#include <stdbool.h>

#include "worker/backend/cuda/conv/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [n, channels, in...], w [channels, 1, kernel...] -> y [n, channels, out...]: rows, then columns. */
struct cuda_depthwise {
  int n, channels, taps;
  int in[2], out[2], kernel[2], stride[2], dilation[2], pad[2]; /* pad: in front */
};

/* Whether the convolution, of tensors of this layout, is such a one; its coordinates are small enough for
   struct cuda_conv's loops. */
bool cuda_depthwise_init(struct cuda_depthwise *shape, const struct cuda_conv *conv, enum cuda_layout layout);

/* As cuda_conv_forward_launch and its neighbours, x and y CHANNELS_LAST; each sum has the same terms in the
   same order, but that a tap beside the input may add a 0. */
void cuda_depthwise_forward_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                   cudaStream_t stream);
void cuda_depthwise_data_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                cudaStream_t stream);
/* x, dy -> dw, in an order that the shape alone gives; partials: cuda_depthwise_weight_bytes. No bias. */
size_t cuda_depthwise_weight_bytes(const struct cuda_depthwise *shape);
void cuda_depthwise_weight_launch(const struct cuda_depthwise *shape, const struct cuda_conv_io *io,
                                  float *partials, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

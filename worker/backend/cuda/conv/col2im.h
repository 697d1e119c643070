/* Col2Im adds columns to an image where their windows lie; Im2Col, its gradient, is the way back. Tensors are
   dense. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_COL2IM_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_COL2IM_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/tensor.h"

enum { COL2IM_DIMS = 3 };

/* Windows over planes, as model/ops/shared/windows.h has them; out: how many there are. */
struct cuda_col2im {
  struct cuda_tensor columns; /* [n, c * taps, windows] */
  struct cuda_tensor image;   /* [n, c, in...] */
  int64_t planes;             /* n * c */
  int in[COL2IM_DIMS], out[COL2IM_DIMS], kernel[COL2IM_DIMS];
  int stride[COL2IM_DIMS], dilation[COL2IM_DIMS], pad[COL2IM_DIMS];
};

#ifdef __cplusplus
extern "C" {
#endif

/* columns -> image: what several windows have for an element is added in the order of the windows. */
void cuda_col2im_launch(const struct cuda_col2im *geometry, cudaStream_t stream);
/* image -> columns: 0 for what lies on the padding. */
void cuda_im2col_launch(const struct cuda_col2im *geometry, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

/* Pools over windows, their gradients, and LRN, on dense tensors and such with channels last. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_POOL_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_POOL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/tensor.h"

enum { POOL_DIMS = 3 };

enum cuda_pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };

/* Windows over the planes of x [n,c,in...], as model/ops/shared/windows.h has them; out: how many there are.
 */
struct cuda_pool {
  enum cuda_pool_kind kind;
  enum cuda_layout layout; /* of all tensors */
  int64_t planes, channels;
  int in[POOL_DIMS], out[POOL_DIMS], kernel[POOL_DIMS], stride[POOL_DIMS], dilation[POOL_DIMS];
  int pad_begin[POOL_DIMS], pad_end[POOL_DIMS], dims;
  bool includes_pad, is_column_major;
  double power;
  struct cuda_tensor x, y, dy, dx; /* y, when absent, is not written */
  void *places;                    /* i32, one a window: the greatest element's in its plane, -1 for none; or,
                                      of those that are wide, u8: its place in the window; NULL */
  int64_t *indices;                /* MaxPool's second output; NULL */
};

/* Regions of channels around each (model/ops/lrn.c); channels are `inner` elements apart. */
struct cuda_lrn {
  int64_t channels, inner, below, above, elems;
  float alpha, beta, bias;       /* alpha: of each element of a region */
  struct cuda_tensor x, dy, out; /* dy absent: out is y, else dx */
  float *responses;              /* f32[elems]: of the gradient */
};

#ifdef __cplusplus
extern "C" {
#endif

/* x -> y, places, indices: as far as they are there. */
void cuda_pool_launch(const struct cuda_pool *pool, cudaStream_t stream);
/* POOL_MAX: dy, places -> dx. POOL_AVERAGE: dy -> dx. POOL_LP: dy, x, y -> dx. */
void cuda_pool_grad_launch(const struct cuda_pool *pool, cudaStream_t stream);

/* Whether these launchers take a pool, which are faster: of the greatest, in one or two dimensions, by eight
   channels. x is of reals, no indices are wanted; both directions go by them, or none. */
bool cuda_pool_is_wide(const struct cuda_pool *pool);
void cuda_pool_wide_launch(const struct cuda_pool *pool, cudaStream_t stream);
void cuda_pool_wide_grad_launch(const struct cuda_pool *pool, cudaStream_t stream);

void cuda_lrn_launch(const struct cuda_lrn *lrn, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

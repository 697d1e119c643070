/* Weighted sums of neighbours along some axes: resizing and its gradient. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_RESIZE_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_RESIZE_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"

enum { RESIZE_AXES_MAX = CUDA_RANK_MAX };

/* Of one axis, for each element o of the result: the terms first[o] to first[o + 1] - 1, each an element of
   the input and its weight. In device memory. */
struct cuda_resize_axis {
  const int32_t *first, *from;
  const float *weight;
  const uint8_t *is_outside; /* [o]; NULL: nowhere */
  int64_t stride;            /* of the input */
  int dim;                   /* of the result */
};

struct cuda_resize {
  int64_t elems;
  int rank, n_axes;
  struct cuda_divisor out[CUDA_RANK_MAX]; /* of the result, as it lies in memory; the outermost first */
  int64_t kept[CUDA_RANK_MAX];            /* stride in the input of a dimension that is kept; 0: of an axis */
  struct cuda_resize_axis axis[RESIZE_AXES_MAX];
  float fill;
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_resize_launch(const struct cuda_resize *resize, const struct cuda_tensor *from,
                        const struct cuda_tensor *to, cudaStream_t stream);
#ifdef __cplusplus
}
#else
#include "model/ops/shared/resample.h"
#include "worker/backend/cuda/engine/cuda.h"

/* Prepares the node, whose input 0 is resampled to its output 0, or with is_back the other way round: the
   tables are copied. False where a table would be too long for the device. */
bool cuda_resample_prepare(struct backend_program *program, const struct node *node,
                           const struct resample *resample, bool is_back);
#endif

#endif

/* Ops whose result depends on where elements are: triangles, sequences turned round, one-hot rows, running
   sums, sums of repeats. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_ARRANGE_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_ARRANGE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"

/* Matrices [rows,cols], one behind the other. */
struct cuda_triangle {
  struct cuda_tensor x, y;
  struct cuda_divisor rows, cols;
  const int64_t *k; /* NULL: 0 */
  bool is_upper;
};

/* x is [batch,steps,inner], or [steps,batch,inner] with is_time_first. */
struct cuda_reversal {
  struct cuda_tensor x, y;
  struct cuda_divisor batch, steps, inner;
  const int64_t *lengths; /* [batch] */
  bool is_time_first;
  struct cuda_fault *fault;
  int node;
};

/* y is [outer,depth,inner], indices [outer,inner]. */
struct cuda_one_hot {
  struct cuda_tensor indices, values /* off, on; absent: 0 and 1, of a real y */, y;
  struct cuda_divisor depth, inner;
};

/* x is [outer,n,inner]: sums along n. */
struct cuda_running_sum {
  struct cuda_tensor x, y;
  int64_t rows, n;
  struct cuda_divisor inner;
  bool is_reverse, is_exclusive;
};

/* dy is dx repeated along each dimension; dx gets the sum of the repeats, the last dimension's first. */
struct cuda_tile_sum {
  struct cuda_tensor dy, dx;
  int64_t repeats; /* of all dimensions together */
  struct cuda_divisor dim[CUDA_RANK_MAX], repeat[CUDA_RANK_MAX];
  int64_t stride[CUDA_RANK_MAX]; /* of dy */
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_triangle_launch(const struct cuda_triangle *triangle, cudaStream_t stream);
void cuda_reversal_launch(const struct cuda_reversal *reversal, cudaStream_t stream);
void cuda_one_hot_launch(const struct cuda_one_hot *one_hot, cudaStream_t stream);
void cuda_running_sum_launch(const struct cuda_running_sum *sum, cudaStream_t stream);
void cuda_tile_sum_launch(const struct cuda_tile_sum *sum, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif

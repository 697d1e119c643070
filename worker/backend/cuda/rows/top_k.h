/* TopK: the first few of each row, in order. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_TOP_K_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_TOP_K_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/sort.h"
#include "worker/backend/cuda/rows/rows.h"

struct cuda_top_k {
  struct cuda_rows rows;   /* of x, [1,outer,n,inner] */
  struct cuda_tensor x, y; /* y [outer,k,inner]; absent: not written */
  int64_t *indices;        /* of y's shape; NULL: not written */
  int64_t k;
  bool is_least; /* the least are wanted */
  int lanes;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Of F32 or BF16. */
void cuda_top_k_launch(const struct cuda_top_k *top_k, cudaStream_t stream);
/* Of all types; sorting is of as many rows as x has elements. */
void cuda_top_k_sort_launch(const struct cuda_top_k *top_k, const struct cuda_sorting *sorting,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

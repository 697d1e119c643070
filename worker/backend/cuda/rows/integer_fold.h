/* Folds of rows of integers and bools, which are exact in 64 bits: sums and products wrap, in whatever order.
 */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_INTEGER_FOLD_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_INTEGER_FOLD_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/rows/fold.h"

struct cuda_integer_fold {
  enum cuda_fold_kind kind; /* FOLD_SUM, _PRODUCT, _MAX, _MIN, _ARG_MAX or _ARG_MIN */
  struct cuda_rows rows;
  struct cuda_tensor x, out; /* out: x's type, of the last two kinds I64 */
  int64_t divisor;           /* what results are divided by, towards 0 */
  bool is_last;              /* of equal elements the last one's index */
  int lanes;
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_integer_fold_launch(const struct cuda_integer_fold *fold, cudaStream_t stream);

#ifdef __cplusplus
}
#else
/* Adds the step that folds input 0 of the node to output 0; kind, rows, divisor and is_last are set. */
bool cuda_integer_fold_prepare(struct backend_program *program, const struct node *node,
                               struct cuda_integer_fold fold);
#endif

#endif

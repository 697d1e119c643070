/* Layer norm of rows that lie one behind the other, by eights, and its gradient. Scale and bias have an
   element for each of a row's; a row is a whole number of eights, and short enough that a warp or a block has
   all of it in registers. So x and dy are read once, for dx and for the gradients of scale and bias. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_ROW_NORM_WIDE_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_ROW_NORM_WIDE_H

#include "worker/backend/cuda/rows/row_wise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether these kernels take it: a ROW_NORM or a ROW_NORM_GRAD whose shapes and types are set, and whose rows
   have a scale. Of the tensors' bytes it asks nothing. */
bool cuda_row_norm_is_wide(const struct cuda_row_wise *norm);
/* The blocks of cuda_row_norm_wide_grad_launch, by the shape alone. */
int64_t cuda_row_norm_wide_parts(const struct cuda_row_wise *norm);

void cuda_row_norm_wide_launch(const struct cuda_row_wise *norm, cudaStream_t stream);
/* partials: double[parts][n][2], the partial results of a fold of the columns: what each block's rows have of
   dbias, then of dscale. */
void cuda_row_norm_wide_grad_launch(const struct cuda_row_wise *norm, double *partials, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif

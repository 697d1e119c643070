/* Products of matrices where they lie, for kernels that make many of them. */
#ifndef WEIR_WORKER_BACKEND_CPU_GEMM_H
#define WEIR_WORKER_BACKEND_CPU_GEMM_H

#include "model/ops/shared/matrix.h"

/* out [a.rows, b.cols], out_stride from row to row, = a b, or += with is_added. Of each operand one stride
 * is 1. */
void gemm_multiply(struct matrix a, struct matrix b, bool is_added, float *out, int64_t out_stride);

#endif

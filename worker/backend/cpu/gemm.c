/* Products of matrices by oneDNN's sgemm. */
#include "worker/backend/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include "common/base/err.h"

/* A matrix as sgemm takes it: 'N' with the rows' stride, or 'T' with the columns'. The stride of a single row
   is nobody's, but sgemm looks at it. */
static char matrix_orientation(const struct matrix *m, int64_t *stride) {
  bool is_transposed = m->col_stride != 1;
  int64_t least = is_transposed ? m->rows : m->cols;
  *stride = is_transposed ? m->col_stride : m->row_stride;
  *stride = *stride > least ? *stride : least;
  return is_transposed ? 'T' : 'N';
}

void gemm_multiply(struct matrix a, struct matrix b, bool is_added, float *out, int64_t out_stride) {
  int64_t a_stride, b_stride;
  char a_side = matrix_orientation(&a, &a_stride), b_side = matrix_orientation(&b, &b_stride);
  CHECK(dnnl_sgemm(a_side, b_side, a.rows, b.cols, a.cols, 1.0f, a.data, a_stride, b.data, b_stride,
                   is_added ? 1.0f : 0.0f, out, out_stride) == dnnl_success);
}

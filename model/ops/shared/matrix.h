/* Matrix products for Gemm and MatMul. */
#ifndef WEIR_MODEL_OPS_SHARED_MATRIX_H
#define WEIR_MODEL_OPS_SHARED_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

/* A view of f32[rows, cols]; element (i, j) is data[i * row_stride + j * col_stride]. */
struct matrix {
  const float *data;
  int64_t rows, cols, row_stride, col_stride;
};

static inline struct matrix matrix_transposed(struct matrix m) {
  return (struct matrix){m.data, m.cols, m.rows, m.col_stride, m.row_stride};
}

/* a f32[m,k], b f32[k,n] -> out f32[m,n], out_stride from row to row, added to what is there with is_added;
   summed in f64. */
static inline void matrix_multiply_into(struct matrix a, struct matrix b, bool is_added, float *out,
                                        int64_t out_stride) {
  for (int64_t i = 0; i < a.rows; i++)
    for (int64_t j = 0; j < b.cols; j++) {
      double sum = is_added ? out[i * out_stride + j] : 0.0;
      for (int64_t k = 0; k < a.cols; k++)
        sum +=
            (double)a.data[i * a.row_stride + k * a.col_stride] * b.data[k * b.row_stride + j * b.col_stride];
      out[i * out_stride + j] = (float)sum;
    }
}

/* The same to a dense out. */
static inline void matrix_multiply(struct matrix a, struct matrix b, float *out) {
  matrix_multiply_into(a, b, false, out, b.cols);
}

#endif

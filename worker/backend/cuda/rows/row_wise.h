/* Kernels whose rows are read once, kept in shared memory, and written once: softmax and its kin, and the
   normalisation of rows. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_ROW_WISE_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_ROW_WISE_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/rows/rows.h"

/* In brackets: the tensors that the kind reads. a, b and c are of the rows' shape. */
enum cuda_row_wise_kind {
  ROW_SOFTMAX,          /* [a = x] -> y */
  ROW_LOG_SOFTMAX,      /* [a = x] -> y */
  ROW_SOFTMAX_GRAD,     /* [a = dy, b = y] -> dx = y (dy - sum(dy y)) */
  ROW_LOG_SOFTMAX_GRAD, /* [a = dy, b = y] -> dx = dy - exp(y) sum(dy) */
  ROW_LP,               /* [a = x] -> x divided by its norm of order `power`, 1 or 2; 0 where that is 0 */
  ROW_LP_GRAD,          /* [a = dy, b = x] -> dx */
  ROW_NORM,             /* [a = x, scale, bias] -> y, and mean and inv_std of each row */
  ROW_NORM_GRAD,        /* [a = dy, b = x, scale, mean, inv_std] -> dx */
  ROW_RMS,              /* [a = x, scale] -> y = x / rms scale */
  ROW_RMS_GRAD,         /* [a = dy scale, b = x, c = dy] -> dx, and out2 = dy x / rms */
};

/* scale and bias, f32, have element at / run % channels for the element at `at`. */
struct cuda_row_wise {
  enum cuda_row_wise_kind kind;
  struct cuda_rows rows;
  struct cuda_tensor a, b, c, out, out2;
  const float *scale, *bias;
  float *mean, *inv_std; /* f32[rows]: what ROW_NORM writes, unless NULL, and ROW_NORM_GRAD reads */
  struct cuda_divisor by_run, by_channels;
  double power, epsilon;
  int lanes;
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_row_wise_launch(const struct cuda_row_wise *row_wise, cudaStream_t stream);

#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* One of a step: which of its arguments the tensors are; -1: none. */
struct cuda_row_step {
  struct cuda_row_wise row_wise;
  int a, b, c, out, out2, scale, bias, mean, inv_std;
};

struct cuda_row_step cuda_row_step_of(enum cuda_row_wise_kind kind);
/* Where scale and bias have their elements. */
void cuda_row_step_channels(struct cuda_row_step *own, int64_t run, int64_t channels);
/* The kernel's operands, as the step's arguments are now: before memory is planned, without bytes. */
struct cuda_row_wise cuda_row_step_operands(const struct cuda_row_step *own, const struct cuda_step *step);
int cuda_row_step_enqueue(const struct cuda_row_step *own, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err);
/* Ends a step that only launches this. */
void cuda_row_step_end(struct backend_program *program, struct cuda_step *step, struct cuda_row_step *own);
#endif

#endif

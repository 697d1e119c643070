/* A tensor as rows, for kernels that fold, normalise or fill along some of its dimensions. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_ROWS_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"

/* The bytes as x[r0,k0,r1,k1]: row i * k1 + j has the n = r0 * r1 elements x[.,i,.,j], which are counted in
   this order. Dimensions that are not there are 1. A batch of channels is [n,c,plane,1] dense, and
   [1,1,n * plane,c] with channels last; a softmax along an axis [1,outer,n,inner]. */
struct cuda_rows {
  int64_t r0, k0, r1, k1, rows, n;
  struct cuda_divisor by_r1, by_k0, by_k1;
};

/* The threads that share a row: 1, a warp or a block. */
enum { ROWS_WARP = 32, ROWS_BLOCK = 256 };

#ifndef __cplusplus
#include "worker/backend/cuda/engine/cuda.h"

/* False where the tensor has 2^31 elements or more. */
bool cuda_rows_init(struct cuda_rows *rows, int64_t r0, int64_t k0, int64_t r1, int64_t k1);
/* One row for each element of `to`, a shape that broadcasts to `from`, both dense. False, too, where reduced
   and kept dimensions alternate more often than [r0,k0,r1,k1] has room for. */
bool cuda_rows_of_reduction(struct cuda_rows *rows, const struct shape *from, const struct shape *to);
/* x [n,c,...]: one row for each channel; one for each channel of each sample. */
bool cuda_rows_of_channels(struct cuda_rows *rows, const struct shape *x, enum cuda_layout layout);
bool cuda_rows_of_planes(struct cuda_rows *rows, const struct shape *x, enum cuda_layout layout);

/* How many threads share a row: 1 where neighbouring rows lie side by side, so that a warp reads one stretch
   of memory, else a warp or, for long rows, a block. */
int cuda_rows_lanes(const struct cuda_rows *rows);

/* As cuda_scratch: an F32 vector. */
int cuda_rows_scratch(struct backend_program *program, struct cuda_step *step, int64_t elems);
/* The argument's tensor; absent for -1. */
struct cuda_tensor cuda_arg_tensor(const struct cuda_step *step, int arg);
/* As cuda_write, for an output that is optional; -1, with none added, where the node has not got it. */
int cuda_write_optional(struct backend_program *program, struct cuda_step *step, int output,
                        enum cuda_type type, enum cuda_layout layout);
#endif

#endif

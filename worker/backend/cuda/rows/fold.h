/* Folds: each row of a tensor to a number or a few. Rows that are few and long are cut into parts, which
   depend on the shape alone; each part is folded by one team of threads in a fixed order, and the parts by
   another, so that the bits are the same each time and on every GPU. Sums are in f64, which is exact enough
   that batch statistics need one pass: a product of two f32 is exact in f64. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ROWS_FOLD_H
#define WEIR_WORKER_BACKEND_CUDA_ROWS_FOLD_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "worker/backend/cuda/rows/norm.h"
#include "worker/backend/cuda/rows/rows.h"

/* What becomes of the elements x of a row: the numbers a and b. */
enum cuda_fold_kind {
  FOLD_SUM,       /* a = sum of x */
  FOLD_ABS,       /* a = sum of |x| */
  FOLD_SQUARES,   /* a = sum of x^2 */
  FOLD_POWERS,    /* a = sum of |x|^power */
  FOLD_PRODUCT,   /* a = product of x */
  FOLD_MAX,       /* a = the greatest; NaN is above all */
  FOLD_MIN,       /* a = the least; NaN is below all */
  FOLD_EXP,       /* a = the greatest, b = sum of exp(x - a) */
  FOLD_ARG_MAX,   /* a = the greatest, b = its index, of equals the first, or the last with is_last */
  FOLD_ARG_MIN,   /* the same for the least; NaN is above all */
  FOLD_FACTORS,   /* a = product of those that are not 0, b = how many are */
  FOLD_EQUALS,    /* a = how many equal the row's element of `other` */
  FOLD_MOMENTS,   /* a = sum of x, b = sum of x^2 */
  FOLD_GRADIENTS, /* a = sum of other, b = sum of other (x - mean) inv_std */
  FOLD_MASKED,    /* the same of what `masking` makes of other */
};

/* What is written of a and b. */
enum cuda_fold_finish {
  FINISH_A,       /* out[0] = a scale */
  FINISH_BOTH,    /* out[0] = b, out[1] = a */
  FINISH_SQRT,    /* out[0] = sqrt(a) */
  FINISH_ROOT,    /* out[0] = a^(1 / power) */
  FINISH_LOG,     /* out[0] = log(a) */
  FINISH_LOG_EXP, /* out[0] = a + log(b) */
  FINISH_INDEX,   /* out[0] = b, an I64 */
  FINISH_PLACE,   /* out[0] = b, an I32 */
  FINISH_MOMENTS, /* out[0] = mean, out[1] = variance, out[2] = 1 / sqrt(variance + epsilon) */
};

struct cuda_fold {
  enum cuda_fold_kind kind;
  enum cuda_fold_finish finish;
  struct cuda_rows rows;
  struct cuda_tensor x, other;
  /* Of FOLD_GRADIENTS: f32, an element for each row, or with stat_elems for each so many elements of x;
     inv_std may be NULL, for 1. */
  const float *mean, *inv_std;
  int64_t stat_elems;
  struct cuda_divisor by_stat_elems;
  struct cuda_masking masking; /* of FOLD_MASKED */
  const float *mask_scale;     /* f32[rows], where its y is computed again */
  struct cuda_tensor out[3];   /* an element a row; those that are absent are not written */
  double scale, power, epsilon;
  bool is_last;
  /* Set by cuda_folding_plan. With groups (fold_columns.cu) a block takes so many groups of eight
     neighbouring rows, and of them `lanes` elements at a time. */
  int lanes, groups;
  int64_t parts, part_elems;
  double *partials; /* a and b of each part of each row */
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_fold_launch(const struct cuda_fold *fold, cudaStream_t stream);
/* The second stage alone: of the parts of each row, what becomes of the row. */
void cuda_fold_parts_launch(const struct cuda_fold *fold, cudaStream_t stream);
/* The first stage of a fold with groups. */
void cuda_fold_columns_launch(const struct cuda_fold *fold, cudaStream_t stream);

#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* A fold of a step: which of its arguments the tensors are; -1: none. cuda_folding_plan adds the partial
   results; everything but the tensors is set before. */
struct cuda_folding {
  struct cuda_fold fold;
  int x, other, mean, inv_std, out[3], partials;
  int addend, y, bias, scale, masked; /* of FOLD_MASKED */
};

struct cuda_folding cuda_folding_of(enum cuda_fold_kind kind, enum cuda_fold_finish finish);
void cuda_folding_plan(struct backend_program *program, struct cuda_step *step, struct cuda_folding *folding);
/* Instead, where another kernel makes the parts of each row, so many. */
void cuda_folding_parts(struct backend_program *program, struct cuda_step *step, struct cuda_folding *folding,
                        int64_t parts);
/* The fold with the arguments' bytes. */
struct cuda_fold cuda_folding_operands(const struct cuda_folding *folding, const struct cuda_step *step);
/* Enqueues it with the arguments' bytes. Errors: those of cuda_check. */
int cuda_folding_enqueue(const struct cuda_folding *folding, const struct cuda_step *step,
                         cudaStream_t stream, struct err *err);
#endif

#endif

/* Rows of a tensor that indices name: gathered, and scattered back in an order that is always the same. Read
   by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_PLACES_H
#define WEIR_WORKER_BACKEND_CUDA_PLACES_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/divide.h"
#include "worker/backend/cuda/tensor.h"

/* The data is rows of `run` elements. Row r of the tensor beside it belongs to the row of the data that is
   found so: the digits of r in the dimensions `dim` times `stride`, and the `tuple` indices that begin at
   element (r % period) * tuple, index k of which counts `index_stride[k]` rows and is less than size[k]. */
struct cuda_places {
  struct cuda_tensor indices; /* I32 or I64; its data is set when it is known */
  int node;                   /* for faults */
  int64_t rows, run, data_rows;
  int rank, tuple;
  struct cuda_divisor dim[CUDA_RANK_MAX], period;
  int64_t stride[CUDA_RANK_MAX], index_stride[CUDA_RANK_MAX], size[CUDA_RANK_MAX];
};

enum cuda_scatter {
  SCATTER_FIRST, /* what the rows sum up to, for a target of zeros */
  SCATTER_ADD,
  SCATTER_MUL,
  SCATTER_MIN,
  SCATTER_MAX,
  SCATTER_LAST, /* the last of them replaces what was there */
};

/* Scratch of a scatter: where each row goes, sorted. */
struct cuda_sorting {
  uint32_t *keys[2], *rows[2]; /* [rows] each; sorted by key, and rows of one key in order, in the first */
  uint32_t *counts;            /* [256][blocks] */
};

enum { SORT_DIGIT_BITS = 8, SORT_DIGITS = 1 << SORT_DIGIT_BITS, SORT_BLOCK = 256 };

/* Bytes of each array. */
static inline int64_t cuda_sort_blocks(int64_t rows) {
  return (rows + SORT_BLOCK - 1) / SORT_BLOCK;
}

#ifdef __cplusplus
extern "C" {
#endif
/* out[r] = data[place of r]; element: bytes of one (1, 2, 4, 8 or 16), of which `run` are a row. */
void cuda_gather_launch(const struct cuda_places *places, int64_t run, int element, const void *data,
                        void *out, struct cuda_fault *fault, cudaStream_t stream);
/* Fills `sorting`. */
void cuda_sort_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                      struct cuda_fault *fault, cudaStream_t stream);
/* Joins the rows of `updates` of each place with what `to` has there, both F32 or BF16. */
void cuda_scatter_launch(const struct cuda_places *places, const struct cuda_sorting *sorting,
                         enum cuda_scatter how, const struct cuda_tensor *updates,
                         const struct cuda_tensor *to, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif

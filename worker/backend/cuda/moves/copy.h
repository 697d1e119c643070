/* Moving elements without computing: copies between strided tensors, fills, padding. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_MOVES_COPY_H
#define WEIR_WORKER_BACKEND_CUDA_MOVES_COPY_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"

enum { COPY_RANK_MAX = 2 * CUDA_RANK_MAX, COPY_ELEMENT_MAX = 16 };

/* *to = *from for every element of a walk of strides. usage:
     struct cuda_copy copy = {.element = 4};
     cuda_copy_dim(&copy, rows, 1, cols);
     cuda_copy_dim(&copy, cols, rows, 1);
     cuda_copy_settle(&copy);
   Strides and offsets count elements of `element` bytes; those of `from` may be 0 or negative, those of `to`
   are positive, and no two elements go to the same place. */
struct cuda_copy {
  int element; /* bytes: 1, 2, 4, 8 or 16 */
  int rank;
  int64_t dim[COPY_RANK_MAX], from[COPY_RANK_MAX], to[COPY_RANK_MAX]; /* outermost first */
  int64_t from_begin, to_begin;
  /* Of the settled copy. */
  int64_t elems;
  struct cuda_divisor divisor[COPY_RANK_MAX];
  int turned; /* the dimension along which neighbours lie side by side in `from` only; -1: none */
};

void cuda_copy_dim(struct cuda_copy *copy, int64_t dim, int64_t from, int64_t to);
/* Joins dimensions and widens elements as far as possible, in the order of `to`. */
void cuda_copy_settle(struct cuda_copy *copy);

/* How many elements a step along dimension d is in the tensor's layout. */
int64_t cuda_stride(const struct cuda_tensor *tensor, int d);
int cuda_element(enum cuda_type type); /* bytes */

enum cuda_pad_mode { CUDA_PAD_CONSTANT, CUDA_PAD_REFLECT, CUDA_PAD_EDGE, CUDA_PAD_WRAP };

/* Element [i0,..] of `to` is element [i0 - before[0],..] of `from`, or as the mode says beyond it. */
struct cuda_pad {
  enum cuda_pad_mode mode;
  int element, rank;
  int64_t elems; /* of `to` */
  struct cuda_divisor out[CUDA_RANK_MAX];
  int64_t in[CUDA_RANK_MAX], before[CUDA_RANK_MAX], from[CUDA_RANK_MAX], to[CUDA_RANK_MAX]; /* strides */
  uint64_t fill; /* its first bytes */
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_copy_launch(const struct cuda_copy *copy, const void *from, void *to, cudaStream_t stream);
/* n elements of the bytes of `value`. */
void cuda_fill_launch(void *to, int64_t n, int element, uint64_t value, cudaStream_t stream);
/* fill NULL: pad->fill. */
void cuda_pad_launch(const struct cuda_pad *pad, const void *from, const void *fill, void *to,
                     cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif

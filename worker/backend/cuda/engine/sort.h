/* Rows sorted by keys, in an order that is always the same. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_SORT_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_SORT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { SORT_DIGIT_BITS = 8, SORT_DIGITS = 1 << SORT_DIGIT_BITS, SORT_BLOCK = 256 };

/* Scratch of a sort of n rows. */
struct cuda_sorting {
  uint32_t *keys[2], *rows[2]; /* [n] each; sorted by key, and rows of one key as they came, in the first */
  uint32_t *counts;            /* [SORT_DIGITS][blocks] */
};

static inline int64_t cuda_sort_blocks(int64_t n) {
  return (n + SORT_BLOCK - 1) / SORT_BLOCK;
}

/* For keys up to `greatest`. */
static inline int cuda_sort_passes(uint32_t greatest) {
  int passes = 1;
  while (passes < 4 && greatest >> (passes * SORT_DIGIT_BITS) != 0)
    passes++;
  return passes;
}

/* Which of the two arrays of keys and rows to fill, so that the sorted rows end in the first. */
static inline int cuda_sort_begin(uint32_t greatest) {
  return cuda_sort_passes(greatest) % 2;
}

#ifdef __cplusplus
extern "C" {
#endif
/* Sorts what is in the arrays of cuda_sort_begin. */
void cuda_sort_launch(const struct cuda_sorting *sorting, int64_t n, uint32_t greatest, cudaStream_t stream);
#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* Adds the scratch of a sort to the step, and returns its first argument. */
int cuda_sorting_add(struct backend_program *program, struct cuda_step *step, int64_t n);
struct cuda_sorting cuda_sorting_of(const struct cuda_step *step, int first);
#endif

#endif

/* Residuals of gradients. */
#include "worker/train/run/residuals.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/memory.h"

struct residual {
  pthread_mutex_t lock; /* two parts of a block may be sent at once; others wait for one sum to be encoded */
  float *values;        /* f32[elems of the block]; NULL: zero */
};

struct residuals {
  const struct compression *compression;
  const uint32_t *elems;
  uint32_t n_blocks;
  struct residual *blocks; /* [n_blocks] */
};

struct residuals *residuals_new(const struct compression *compression, const uint32_t *elems,
                                uint32_t n_blocks) {
  struct residuals *residuals = mem_new(sizeof *residuals);
  *residuals = (struct residuals){compression, elems, n_blocks, mem_new(n_blocks * sizeof(struct residual))};
  for (uint32_t b = 0; b < n_blocks; b++)
    pthread_mutex_init(&residuals->blocks[b].lock, NULL);
  return residuals;
}

void residuals_free(struct residuals *residuals) {
  if (!residuals)
    return;
  residuals_clear(residuals);
  for (uint32_t b = 0; b < residuals->n_blocks; b++)
    pthread_mutex_destroy(&residuals->blocks[b].lock);
  free(residuals->blocks);
  free(residuals);
}

void residuals_clear(struct residuals *residuals) {
  for (uint32_t b = 0; residuals && b < residuals->n_blocks; b++) {
    free(residuals->blocks[b].values);
    residuals->blocks[b].values = NULL;
  }
}

void residuals_encode(struct residuals *residuals, const struct wire_sum *sum, float *values) {
  const struct compression *compression = residuals->compression;
  struct residual *residual = &residuals->blocks[sum->block];
  uint32_t elems = residuals->elems[sum->block];
  pthread_mutex_lock(&residual->lock);
  if (!residual->values)
    residual->values = mem_new(elems * sizeof *residual->values);
  compressor_encode_with_feedback(compression->gradients, compression_key(compression, sum), values,
                                  residual->values, elems);
  pthread_mutex_unlock(&residual->lock);
}

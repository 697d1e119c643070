/* Means and variances of channels, norms by them, and the gradient of a norm. oneDNN adds the elements of a
   channel one by one in f32. There are too many of them for that: training then departs from the results of
   exact sums within a few steps. Here sums are f32 over a few elements, in an order that follows from the
   layout, and f64 over those sums. */
#ifndef WEIR_WORKER_BACKEND_CPU_NORMS_MOMENTS_H
#define WEIR_WORKER_BACKEND_CPU_NORMS_MOMENTS_H

#include "worker/backend/fused_activation.h"
#include "worker/backend/cpu/cpu.h"

/* Where the elements of a channel lie: f32 or bf16[n, c, positions...] dense, with channels last, or in
   blocks of channels. In each sample, a block of channels is some rows; elements k, k + block, ... of a row
   belong to channel k of the block. Strides are in elements. */
struct moments {
  int64_t channels, padded; /* without and with those that only fill the last block: 0 in every tensor */
  int64_t block, block_step;
  int64_t samples, sample_step;
  int64_t rows, row_step; /* of a sample */
  int64_t repeats;        /* elements of one channel in a row */
  int64_t rest;           /* elements of a shorter row behind the others; 0: there is none */
  double elems;           /* of a channel */
  bool is_bf16;           /* the tensors are in bf16: all sums are the same as of f32 */
};

/* False for another layout; never for a dense one. */
bool moments_init(struct moments *moments, const dnnl_memory_desc_t *layout);

/* y = activation((x - mean) scale / sqrt(variance + epsilon) + bias): x, y as described, y at x's place or
   apart, scale, bias, mean, variance f32[c]. Padding of y is 0, so that Clip's bounds must have 0 between
   them. */
struct moments_norm {
  const void *x;
  const float *scale, *bias;
  float epsilon;
  struct fused_activation activation;
  float *mean, *variance;
  void *y;
  float *line; /* f32[2, c] what x - mean was multiplied with, and what was added; NULL: not wanted */
};

/* By means and variances that are given. */
void moments_normalize(const struct moments *moments, const struct moments_norm *norm);
/* By those of x (variances of the population), which are written. */
void moments_train(const struct moments *moments, const struct moments_norm *norm);

/* Of y = activation(norm), where norm = (x - mean) inv_std scale + bias: dy, x as described, scale, mean,
   inv_std f32[c] -> dx as described, at dy's place or apart, dscale, dbias f32[c]. Padding of dx is 0. Where
   there is an activation, `line` is what moments_train has written, and the norm is computed again. */
struct moments_gradient {
  const void *dy, *x;
  const float *scale, *mean, *inv_std, *line;
  struct fused_activation activation;
  void *dx;
  float *dscale, *dbias;
};

void moments_differentiate(const struct moments *moments, const struct moments_gradient *gradient);

#endif

/* Means and variances of channels. oneDNN adds the elements of a channel one by one in f32, of which there
   are too many for that: training then parts from what exact sums give within a few steps. */
#ifndef WEIR_WORKER_BACKEND_CPU_MOMENTS_H
#define WEIR_WORKER_BACKEND_CPU_MOMENTS_H

#include "worker/backend/cpu/cpu.h"

/* Where the elements of a channel lie: f32[n, c, positions...] dense, with channels last, or in blocks of
   channels. */
struct moments {
  int64_t n, c, positions;
  int64_t sample_step, position_step, block_step; /* elements from one to the next */
  int64_t block;                                  /* channels that lie side by side; 1: positions do */
};

/* False for another layout. */
bool moments_init(struct moments *moments, const dnnl_memory_desc_t *layout);

/* x as described -> mean f32[c], variance f32[c] (of the population). Sums are f32 over a few elements, in
   an order that follows from the layout, and f64 over those. */
void moments_compute(const struct moments *moments, const float *x, float *mean, float *variance);

#endif

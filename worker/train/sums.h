/* Arithmetic on gradients: sums along the reduction tree. The calling thread's setting of subnormals counts
   (backend_thread_init). */
#ifndef WEIR_WORKER_TRAIN_SUMS_H
#define WEIR_WORKER_TRAIN_SUMS_H

#include <stdbool.h>
#include <stddef.h>

/* out[i] = in[i]. False if an element is not finite. */
bool sums_copy(float *out, const float *in, size_t n);

/* out[i] = in[i] + out[i]. False if a sum is not finite. */
bool sums_add(float *out, const float *in, size_t n);

bool sums_are_finite(const float *in, size_t n); /* every element is */

#endif

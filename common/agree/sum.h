/* The one addition of gradients. A sum is made by whoever holds both parts: an executor, a relay, a
   collective, a server's shard, or a device by kernels with the same bits
   (worker/backend/cuda/engine/sums.h). The order of sums is common/agree/tree.h's.

   f32 a + b, rounded to nearest even; subnormals count as zero with their sign, as operands and as results:
   the setting of common/agree/float_setting.h, which must hold on the calling thread. What is not finite is
   found, not hidden; the bits of a NaN are not defined. */
#ifndef WEIR_COMMON_AGREE_SUM_H
#define WEIR_COMMON_AGREE_SUM_H

#include <stdbool.h>
#include <stddef.h>

static inline float sum_of(float a, float b) {
  return a + b;
}

/* sum[i] = sum[i] + added[i]. False if an element of the sum is not finite. No aliasing. */
bool sum_add(float *restrict sum, const float *restrict added, size_t elems);

/* out[i] = in[i], whose bits stay. False if an element is not finite. No aliasing. */
bool sum_copy(float *restrict out, const float *restrict in, size_t elems);

/* The index of the first element that is NaN or infinite; elems if there is none. */
size_t sum_first_not_finite(const float *values, size_t elems);

bool sum_is_finite(const float *values, size_t elems); /* every element is */

#endif

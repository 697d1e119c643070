/* Rows between f32 and bf16. */
#include "worker/backend/cpu/reals.h"

#include "common/base/vector_variants.h"

VECTOR_VARIANTS void reals_widen(const void *from, int64_t at, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++)
    to[i] = real_at(from, at + i, true);
}

VECTOR_VARIANTS void reals_narrow(const float *from, int64_t n, float factor, void *to, int64_t at) {
  for (int64_t i = 0; i < n; i++)
    real_put(to, at + i, true, from[i] * factor);
}

/* Sums of arrays. The exponent's bits are looked at as integers, so that the loops become vector code. */
#include "common/agree/sum.h"

#include <stdint.h>
#include <string.h>

#include "common/base/vector_variants.h"

/* An element is finite unless its exponent is all ones. */
static inline uint32_t is_bad(float value) {
  const uint32_t exponent = 0x7f800000;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & exponent) == exponent;
}

VECTOR_VARIANTS
bool sum_add(float *restrict sum, const float *restrict added, size_t elems) {
  uint32_t bad = 0;
  for (size_t i = 0; i < elems; i++) {
    sum[i] = sum_of(sum[i], added[i]);
    bad |= is_bad(sum[i]);
  }
  return !bad;
}

VECTOR_VARIANTS
bool sum_copy(float *restrict out, const float *restrict in, size_t elems) {
  uint32_t bad = 0;
  for (size_t i = 0; i < elems; i++) {
    out[i] = in[i];
    bad |= is_bad(in[i]);
  }
  return !bad;
}

VECTOR_VARIANTS
bool sum_is_finite(const float *values, size_t elems) {
  uint32_t bad = 0;
  for (size_t i = 0; i < elems; i++)
    bad |= is_bad(values[i]);
  return !bad;
}

size_t sum_first_not_finite(const float *values, size_t elems) {
  if (sum_is_finite(values, elems))
    return elems;
  for (size_t i = 0; i < elems; i++)
    if (is_bad(values[i]))
      return i;
  return elems;
}

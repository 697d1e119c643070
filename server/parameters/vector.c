/* Loops over f32 arrays. The exponent's bits are looked at as integers, so that the loops become vector code.
 */
#include "server/parameters/vector.h"

#include <string.h>

static const uint32_t exponent_bits = 0x7f800000;

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool vector_add(float *restrict sum, const float *restrict values, uint32_t elems) {
  uint32_t bad = 0;
  for (uint32_t i = 0; i < elems; i++) {
    sum[i] += values[i];
    bad |= (bits_of(sum[i]) & exponent_bits) == exponent_bits;
  }
  return !bad;
}

uint32_t vector_first_not_finite(const float *values, uint32_t elems) {
  uint32_t bad = 0;
  for (uint32_t i = 0; i < elems; i++)
    bad |= (bits_of(values[i]) & exponent_bits) == exponent_bits;
  if (!bad)
    return elems;
  for (uint32_t i = 0; i < elems; i++)
    if ((bits_of(values[i]) & exponent_bits) == exponent_bits)
      return i;
  return elems;
}

/* Arithmetic on gradients. */
#include "worker/train/sums.h"

#include <stdint.h>
#include <string.h>

/* An element is finite unless its exponent is all ones. */
enum { EXPONENT = 0x7f800000 };

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool sums_copy(float *out, const float *in, size_t n) {
  uint32_t not_finite = 0;
  for (size_t i = 0; i < n; i++) {
    out[i] = in[i];
    not_finite |= (float_bits(in[i]) & EXPONENT) == EXPONENT;
  }
  return !not_finite;
}

bool sums_add(float *out, const float *in, size_t n) {
  uint32_t not_finite = 0;
  for (size_t i = 0; i < n; i++) {
    out[i] = in[i] + out[i];
    not_finite |= (float_bits(out[i]) & EXPONENT) == EXPONENT;
  }
  return !not_finite;
}

bool sums_are_finite(const float *in, size_t n) {
  uint32_t not_finite = 0;
  for (size_t i = 0; i < n; i++)
    not_finite |= (float_bits(in[i]) & EXPONENT) == EXPONENT;
  return !not_finite;
}

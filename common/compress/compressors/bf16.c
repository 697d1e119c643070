/* bf16: the upper half of each f32, rounded to the nearest, ties to even. Nothing is drawn: the error of a
   value is at most 1/256 of it, and as often up as down over the values of a gradient; and what bf16 computed
   stays as it is. Beyond the largest bf16 that is what is sent. */
#include <string.h>

#include "common/base/half.h"
#include "common/base/vector_variants.h"
#include "common/compress/compressor.h"

enum { EXPONENT = 0x7f80, LARGEST = 0x7f7f, SIGN = 0x8000 };

static size_t bf16_range_bytes(uint32_t n) {
  return n * sizeof(uint16_t);
}

VECTOR_VARIANTS
static void round_all(const float *restrict values, uint32_t n, uint16_t *restrict out) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t bits, kept;
    memcpy(&bits, &values[i], sizeof bits);
    kept = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    out[i] = (uint16_t)((kept & EXPONENT) == EXPONENT ? (kept & SIGN) | LARGEST : kept);
  }
}

static void bf16_encode(const float *values, uint32_t n, const struct compressor_draws *draws, uint8_t *out) {
  uint16_t rounded[COMPRESSOR_RANGE];
  (void)draws;
  round_all(values, n, rounded);
  memcpy(out, rounded, bf16_range_bytes(n));
}

static bool bf16_decode(const uint8_t *bytes, uint32_t n, float *out) {
  uint16_t rounded[COMPRESSOR_RANGE];
  bool is_finite = true;
  memcpy(rounded, bytes, bf16_range_bytes(n));
  for (uint32_t i = 0; i < n; i++) {
    is_finite &= (rounded[i] & EXPONENT) != EXPONENT;
    out[i] = f32_of_bf16(rounded[i]);
  }
  return is_finite;
}

const struct compressor_def compressor_bf16 = {.name = "bf16",
                                               .fits_weights = true,
                                               .range_bytes = bf16_range_bytes,
                                               .encode = bf16_encode,
                                               .decode = bf16_decode};

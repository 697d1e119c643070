/* bf16: the upper half of each f32, rounded to the nearest, ties to even. Nothing is drawn: the error of a
   value is at most 1/256 of it, and as often up as down over the values of a gradient; and what bf16 computed
   stays as it is. Beyond the largest bf16 that is what is sent. */
#include <string.h>

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

/* The widths of what is compared and stored are the same, as vector code wants it. */
VECTOR_VARIANTS
static bool widen_all(const uint16_t *restrict rounded, uint32_t n, float *restrict out) {
  uint32_t n_infinite = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)rounded[i] << 16;
    n_infinite += (rounded[i] & EXPONENT) == EXPONENT;
    memcpy(&out[i], &bits, sizeof bits);
  }
  return n_infinite == 0;
}

static bool bf16_decode(const uint8_t *bytes, uint32_t n, float *out) {
  uint16_t rounded[COMPRESSOR_RANGE];
  memcpy(rounded, bytes, bf16_range_bytes(n));
  return widen_all(rounded, n, out);
}

const struct compressor_def compressor_bf16 = {.name = "bf16",
                                               .fits_weights = true,
                                               .range_bytes = bf16_range_bytes,
                                               .encode = bf16_encode,
                                               .decode = bf16_decode};

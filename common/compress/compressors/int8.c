/* int8: a scale for each range, and each value as a whole multiple of it from -127 to 127, rounded up or down
   by a draw, so that its mean over draws is the value. A range is sent as the scale, a bf16, then i8[n].

   The scale is a 127th of the range's largest magnitude, rounded up to a bf16: so each value is at most 127
   of it, and scale times multiple is exact in f32. It is at least the smallest normal number, since
   subnormals count as zero, and at most so large that 127 times it is finite: what is above that is cut, by
   less than 1/10,000 of it. */
#include <float.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/base/half.h"
#include "common/base/vector_variants.h"
#include "common/compress/compressor.h"

enum { MULTIPLE_MAX = 127, SCALE_BYTES = sizeof(uint16_t) };
enum { SCALE_LEAST = 0x0080, SCALE_LARGEST = 0x7c01 }; /* bf16s: FLT_MIN, and 2^121 + 2^114 */

_Static_assert(MULTIPLE_MAX *(0x1p121 + 0x1p114) <= (double)FLT_MAX, "what is read is finite");

static size_t int8_range_bytes(uint32_t n) {
  return SCALE_BYTES + n;
}

VECTOR_VARIANTS
static uint32_t largest_magnitude(const float *values, uint32_t n) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

static uint16_t scale_of(const float *values, uint32_t n) {
  uint32_t bits = largest_magnitude(values, n);
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  scale /= MULTIPLE_MAX;
  memcpy(&bits, &scale, sizeof bits);
  bits = (bits + 0xffff) >> 16;
  bits = bits < SCALE_LARGEST ? bits : SCALE_LARGEST;
  return (uint16_t)(bits > SCALE_LEAST ? bits : SCALE_LEAST);
}

/* Up by a draw that lies below what is beyond the next lower whole number: of a whole number never. */
VECTOR_VARIANTS
static void round_by_draws(const float *restrict values, uint32_t n, float scale,
                           const float *restrict uniform, int8_t *restrict out) {
  for (uint32_t i = 0; i < n; i++) {
    float exact = values[i] / scale;
    int32_t whole = (int32_t)exact;
    int32_t lower = whole - (exact < (float)whole);
    int32_t rounded = lower + (uniform[i] < exact - (float)lower);
    rounded = rounded < MULTIPLE_MAX ? rounded : MULTIPLE_MAX;
    out[i] = (int8_t)(rounded > -MULTIPLE_MAX ? rounded : -MULTIPLE_MAX);
  }
}

static void int8_encode(const float *values, uint32_t n, const struct compressor_draws *draws, uint8_t *out) {
  uint16_t scale = scale_of(values, n);
  float uniform[COMPRESSOR_RANGE];
  int8_t rounded[COMPRESSOR_RANGE];
  random_uniforms(draws->key, draws->index, uniform, n);
  round_by_draws(values, n, f32_of_bf16(scale), uniform, rounded);
  memcpy(out, &scale, SCALE_BYTES);
  memcpy(out + SCALE_BYTES, rounded, n);
}

VECTOR_VARIANTS
static bool multiply_all(const int8_t *restrict multiples, uint32_t n, float scale, float *restrict out) {
  uint32_t n_unknown = 0;
  for (uint32_t i = 0; i < n; i++) {
    n_unknown += multiples[i] < -MULTIPLE_MAX;
    out[i] = scale * (float)multiples[i];
  }
  return n_unknown == 0;
}

static bool int8_decode(const uint8_t *bytes, uint32_t n, float *out) {
  int8_t multiples[COMPRESSOR_RANGE];
  uint16_t scale;
  memcpy(&scale, bytes, SCALE_BYTES);
  memcpy(multiples, bytes + SCALE_BYTES, n);
  return scale >= SCALE_LEAST && scale <= SCALE_LARGEST &&
         multiply_all(multiples, n, f32_of_bf16(scale), out);
}

const struct compressor_def compressor_int8 = {
    .name = "int8", .range_bytes = int8_range_bytes, .encode = int8_encode, .decode = int8_decode};

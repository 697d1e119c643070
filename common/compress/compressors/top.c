/* top1, top4, top16: of each range the values of the largest magnitudes, so many of 128, each as the bf16
   that is nearest to it, and the others as zero: error feedback sends those later. A range is sent as u8[k],
   where the values lie, in rising order, and bf16[k], where k is so many or, of a shorter range, all of it.
   Of two values that differ by less than 1/65,536 the first counts as the larger one. */
#include <string.h>

#include "common/base/half.h"
#include "common/base/vector_variants.h"
#include "common/compress/compressor.h"

enum { EXPONENT = 0x7f80, LARGEST = 0x7f7f, SIGN = 0x8000 };
enum { PLACES = COMPRESSOR_RANGE - 1, ENTRY_BYTES = sizeof(uint8_t) + sizeof(uint16_t) };

_Static_assert((COMPRESSOR_RANGE & PLACES) == 0 && COMPRESSOR_RANGE <= 256, "a place has bits of its own");

static uint32_t lesser(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

/* A magnitude, whose last bits make way for how far the value is from the range's end: no two are the same.
 */
VECTOR_VARIANTS
static void rank_all(const float *restrict values, uint32_t n, int32_t *restrict ranks) {
  for (uint32_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    ranks[i] = (bits & INT32_MAX & ~PLACES) | (int32_t)(PLACES - i);
  }
}

VECTOR_VARIANTS
static int32_t highest_below(const int32_t *ranks, uint32_t n, int32_t below) {
  int32_t highest = 0;
  for (uint32_t i = 0; i < n; i++) {
    int32_t rank = ranks[i] < below ? ranks[i] : 0;
    highest = rank > highest ? rank : highest;
  }
  return highest;
}

/* The first n of the places are in rising order. */
static void insert_place(uint8_t *places, uint32_t n, uint8_t place) {
  for (; n > 0 && places[n - 1] > place; n--)
    places[n] = places[n - 1];
  places[n] = place;
}

static uint16_t nearest_finite(float value) {
  uint16_t bits = bf16_of_f32(value);
  return (uint16_t)((bits & EXPONENT) == EXPONENT ? (bits & SIGN) | LARGEST : bits);
}

static void encode_largest(uint32_t most, const float *values, uint32_t n, uint8_t *out) {
  int32_t ranks[COMPRESSOR_RANGE], rank = INT32_MAX;
  uint32_t k = lesser(most, n);
  rank_all(values, n, ranks);
  for (uint32_t i = 0; i < k; i++) {
    rank = highest_below(ranks, n, rank);
    insert_place(out, i, (uint8_t)(PLACES - (rank & PLACES)));
  }
  for (uint32_t i = 0; i < k; i++) {
    uint16_t value = nearest_finite(values[out[i]]);
    memcpy(out + k + i * sizeof value, &value, sizeof value);
  }
}

static bool decode_largest(uint32_t most, const uint8_t *bytes, uint32_t n, float *out) {
  uint32_t k = lesser(most, n);
  memset(out, 0, n * sizeof *out);
  for (uint32_t i = 0; i < k; i++) {
    uint16_t value;
    memcpy(&value, bytes + k + i * sizeof value, sizeof value);
    if (bytes[i] >= n || (i > 0 && bytes[i] <= bytes[i - 1]) || (value & EXPONENT) == EXPONENT)
      return false;
    out[bytes[i]] = f32_of_bf16(value);
  }
  return true;
}

#define TOP(most)                                                                                            \
  static size_t top##most##_range_bytes(uint32_t n) {                                                        \
    return lesser(most, n) * ENTRY_BYTES;                                                                    \
  }                                                                                                          \
  static void top##most##_encode(const float *values, uint32_t n, const struct compressor_draws *draws,      \
                                 uint8_t *out) {                                                             \
    (void)draws;                                                                                             \
    encode_largest(most, values, n, out);                                                                    \
  }                                                                                                          \
  static bool top##most##_decode(const uint8_t *bytes, uint32_t n, float *out) {                             \
    return decode_largest(most, bytes, n, out);                                                              \
  }                                                                                                          \
  const struct compressor_def compressor_top##most = {.name = "top" #most,                                   \
                                                      .has_feedback = true,                                  \
                                                      .range_bytes = top##most##_range_bytes,                \
                                                      .encode = top##most##_encode,                          \
                                                      .decode = top##most##_decode};

TOP(1)
TOP(4)
TOP(16)

/* 16-bit floating point, by bits: no mode of the CPU (flush to zero, rounding) changes the result. */
#include "common/base/half.h"

#include <string.h>

enum { F16_EXPONENT_MAX = 31, F16_BIAS = 15, F32_BIAS = 127, F32_EXPONENT_MAX = 255 };

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

float f32_of_f16(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == F16_EXPONENT_MAX)
    return float_of(sign | (uint32_t)F32_EXPONENT_MAX << 23 | fraction << 13);
  if (exponent == 0 && fraction == 0)
    return float_of(sign);
  if (exponent == 0) { /* a subnormal, which f32 holds as a normal number: its leading one becomes implicit */
    int shift = __builtin_clz(fraction) - 21;
    exponent = (uint32_t)(1 - shift);
    fraction = fraction << shift & 0x3ff;
  }
  return float_of(sign | (exponent + F32_BIAS - F16_BIAS) << 23 | fraction << 13);
}

float f32_of_bf16(uint16_t bits) {
  return float_of((uint32_t)bits << 16);
}

/* value >> shift, to the nearest, ties to even. */
static uint32_t shift_rounded(uint32_t value, int shift) {
  uint32_t half = 1u << (shift - 1), rest = value & (2 * half - 1), kept = value >> shift;
  return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t f16_of_f32(float value) {
  uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, fraction = bits & 0x7fffff;
  int exponent = (int)(bits >> 23 & 0xff) - F32_BIAS + F16_BIAS;
  if (exponent == F32_EXPONENT_MAX - F32_BIAS + F16_BIAS)
    return (uint16_t)(sign | 0x7c00 | (fraction ? 0x200 | fraction >> 13 : 0));
  if (exponent >= F16_EXPONENT_MAX)
    return (uint16_t)(sign | 0x7c00);
  if (exponent < -10) /* below half of the smallest subnormal */
    return (uint16_t)sign;
  if (exponent <= 0)
    return (uint16_t)(sign | shift_rounded(fraction | 0x800000, 14 - exponent));
  /* A carry out of the fraction goes into the exponent, and out of the largest one into infinity: as it
     should. */
  return (uint16_t)(sign | shift_rounded((uint32_t)exponent << 23 | fraction, 13));
}

uint16_t bf16_of_f32(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)shift_rounded(bits, 16);
}

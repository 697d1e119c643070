/* Elements in f32 or bf16, for loops that the compiler turns into vector instructions. */
#ifndef WEIR_WORKER_BACKEND_CPU_REALS_H
#define WEIR_WORKER_BACKEND_CPU_REALS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* For functions with loops over bf16 alone, which CPUs with AVX-512 compute and no others. */
#if defined(__x86_64__) && !defined(__clang__)
#define BF16_VARIANT __attribute__((target("arch=x86-64-v4")))
#else
#define BF16_VARIANT
#endif

#define INLINED inline __attribute__((always_inline))

static INLINED float real_of_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* To the nearest, ties to even; NaN stays NaN: the bits of bf16_of_f32 (common/base/half.h). */
static INLINED uint16_t bf16_of_real(float value) {
  uint32_t bits, rounded;
  memcpy(&bits, &value, sizeof bits);
  rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* is_bf16 is a constant of the loop. */
static INLINED float real_at(const void *data, int64_t i, bool is_bf16) {
  return is_bf16 ? real_of_bf16(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static INLINED void real_put(void *data, int64_t i, bool is_bf16, float value) {
  if (is_bf16)
    ((uint16_t *)data)[i] = bf16_of_real(value);
  else
    ((float *)data)[i] = value;
}

/* The same of 16 elements, for loops in which gcc would not make vectors of it. */
static INLINED void bf16_of_reals(const float from[16], uint16_t *to) {
  typedef uint32_t words __attribute__((vector_size(16 * sizeof(uint32_t))));
  typedef uint16_t halves __attribute__((vector_size(16 * sizeof(uint16_t))));
  words bits, rounded, is_nan;
  memcpy(&bits, from, sizeof bits);
  rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  is_nan = (words)((bits & 0x7fffffff) > 0x7f800000);
  rounded = (rounded & ~is_nan) | ((bits >> 16 | 0x40) & is_nan);
  halves result = __builtin_convertvector(rounded, halves);
  memcpy(to, &result, sizeof result);
}

static INLINED void reals_put(void *data, int64_t at, bool is_bf16, const float *from, const int64_t n) {
  int64_t i = 0;
  for (; is_bf16 && i + 16 <= n; i += 16)
    bf16_of_reals(from + i, (uint16_t *)data + at + i);
  for (; i < n; i++)
    real_put(data, at + i, is_bf16, from[i]);
}

/* reals.c: n elements of bf16 from element `at` on -> f32[n]. */
void reals_widen(const void *from, int64_t at, int64_t n, float *to);
/* f32[n], each times the factor -> n elements of bf16 from element `at` on. */
void reals_narrow(const float *from, int64_t n, float factor, void *to, int64_t at);

#endif

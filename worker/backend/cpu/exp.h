/* e^x for loops that the compiler turns into vector instructions: the same bits in every lane and on every
   instruction set. */
#ifndef WEIR_WORKER_BACKEND_CPU_EXP_H
#define WEIR_WORKER_BACKEND_CPU_EXP_H

#include <stdint.h>
#include <string.h>

#include "common/base/vector_variants.h"

/* Within 3 units in the last place of e^x; 0 below -87.3 (and for -inf), finite above. x is not NaN.
   x = n ln 2 + r, |r| <= ln(2) / 2; e^r by its Taylor polynomial of degree 6. */
static inline float exp_vector(float x) {
  const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
  float limited = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
  float shifted = limited * 1.44269504f + to_integer, n = shifted - to_integer;
  float r = (limited - n * 0.693145752f) - n * 1.42860677e-6f, e = 1.38888889e-3f, power;
  int32_t bits;
  e = e * r + 8.33333333e-3f;
  e = e * r + 4.16666667e-2f;
  e = e * r + 1.66666667e-1f;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (int32_t)((uint32_t)(bits + 127) << 23);
  memcpy(&power, &bits, sizeof power);
  return x < -87.3f ? 0.0f : e * power;
}

#endif

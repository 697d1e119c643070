/* Loops over arrays. */
#include "common/optim/vector.h"

#include <math.h>

#include "common/base/vector_variants.h"

enum { LANES = 8 };

bool vector_is_finite(const double *values, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!isfinite(values[i]))
      return false;
  return true;
}

VECTOR_VARIANTS
double vector_sum_squares(const float *values, uint32_t elems) {
  double lanes[LANES] = {0}, sum = 0;
  uint32_t i = 0;
  for (; i + LANES <= elems; i += LANES)
    for (uint32_t lane = 0; lane < LANES; lane++)
      lanes[lane] += (double)values[i + lane] * values[i + lane];
  for (uint32_t lane = 0; i < elems; i++, lane++)
    lanes[lane] += (double)values[i] * values[i];
  for (uint32_t lane = 0; lane < LANES; lane++)
    sum += lanes[lane];
  return sum;
}

VECTOR_VARIANTS
void vector_scale(float *values, uint32_t elems, float factor) {
  for (uint32_t i = 0; i < elems; i++)
    values[i] *= factor;
}

VECTOR_VARIANTS
void vector_clamp(float *values, uint32_t elems, float limit) {
  for (uint32_t i = 0; i < elems; i++)
    values[i] = values[i] > limit ? limit : values[i] < -limit ? -limit : values[i];
}

/* Initial values, drawn from counters. */
#include "model/onnx/initial_values.h"

#include <math.h>

#include "common/agree/random.h"

struct initial_values initial_xavier(int64_t fan_in, int64_t fan_out) {
  return initial_uniform(sqrt(6.0 / ((double)fan_in + (double)fan_out)));
}

struct initial_values initial_kaiming(int64_t fan_out) {
  return initial_normal(sqrt(2.0 / (double)fan_out));
}

struct initial_values initial_usual(int64_t fan_in) {
  return initial_uniform(1 / sqrtf((float)fan_in));
}

/* Draws again, from streams of their own, what falls outside: that is rare where the deviation is small. */
static double draw_truncated(uint64_t key, uint64_t index, double deviation) {
  double value = deviation * random_normal(key, index);
  for (uint64_t attempt = 1; fabs(value) > 2; attempt++)
    value = deviation * random_normal(random_key(key, index, attempt, 0), 0);
  return value;
}

void initial_fill(struct initial_values values, uint64_t key, float *out, int64_t elems) {
  float bound = (float)values.a;
  for (int64_t i = 0; i < elems; i++)
    switch (values.kind) {
    case INITIAL_CONSTANT:
      out[i] = (float)values.a;
      break;
    case INITIAL_UNIFORM:
      out[i] = (2 * random_uniform(key, (uint64_t)i) - 1) * bound;
      break;
    case INITIAL_NORMAL:
      out[i] = (float)(values.a * random_normal(key, (uint64_t)i));
      break;
    case INITIAL_TRUNCATED:
      out[i] = (float)draw_truncated(key, (uint64_t)i, values.a);
      break;
    }
}

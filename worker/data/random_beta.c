/* Numbers of a beta distribution, from counters. */
#include "worker/data/random_beta.h"

#include <math.h>

#include "common/agree/random.h"

/* In (0, 1). */
static double draw_uniform(uint64_t key, uint64_t *index) {
  return ((double)(random_bits(key, (*index)++) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller's. */
static double draw_normal(uint64_t key, uint64_t *index) {
  double radius = sqrt(-2 * log(draw_uniform(key, index)));
  return radius * cos(2 * M_PI * draw_uniform(key, index));
}

/* The logarithm of a number of Gamma(shape), shape at least 1. More than 95 in 100 tries are taken. */
static double draw_log_gamma_from_1(uint64_t key, uint64_t *index, double shape) {
  double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    double x = draw_normal(key, index), root = 1 + c * x, v = root * root * root;
    double u = draw_uniform(key, index);
    if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
      return log(d) + log(v);
  }
}

/* Of Gamma(shape) below 1 is Gamma(shape + 1) u^(1 / shape). */
static double draw_log_gamma(uint64_t key, uint64_t *index, double shape) {
  if (shape >= 1)
    return draw_log_gamma_from_1(key, index, shape);
  return draw_log_gamma_from_1(key, index, shape + 1) + log(draw_uniform(key, index)) / shape;
}

double random_beta(uint64_t key, double a, double b) {
  uint64_t index = 0;
  double x = draw_log_gamma(key, &index, a), y = draw_log_gamma(key, &index, b);
  return 1 / (1 + exp(y - x));
}

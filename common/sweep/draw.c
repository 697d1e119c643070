/* Random numbers of one trial, and the normal distribution. */
#include "common/sweep/draw.h"

#include <math.h>

#include "common/agree/random.h"

static const uint64_t SWEEPS = 0x7377656570ull; /* keeps keys of sweeps apart from those of runs */

struct draw draw_begin(uint64_t seed, uint64_t trial, uint64_t stream) {
  return (struct draw){.key = random_key(seed, trial, stream, SWEEPS)};
}

double draw_uniform(struct draw *draw) {
  return (double)(random_bits(draw->key, draw->index++) >> 11) * 0x1p-53;
}

uint32_t draw_below(struct draw *draw, uint32_t count) {
  uint32_t drawn = (uint32_t)(draw_uniform(draw) * count);
  return drawn < count ? drawn : count - 1;
}

double draw_normal(struct draw *draw) {
  return normal_quantile(draw_uniform(draw) + 0x1p-54);
}

int draw_weighted(struct draw *draw, const double *weights, int n) {
  double total = 0, at;
  int last = 0;
  for (int i = 0; i < n; i++)
    total += weights[i];
  at = draw_uniform(draw) * total;
  for (int i = 0; i < n; i++) {
    if (weights[i] > 0)
      last = i;
    at -= weights[i];
    if (at < 0)
      return i;
  }
  return last;
}

double normal_cdf(double x) {
  return 0.5 * erfc(-x * M_SQRT1_2);
}

double normal_density(double x) {
  return exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
}

/* The ratio of two polynomials of degree 7, coefficients from the highest. */
static double ratio(const double above[8], const double below[8], double x) {
  double a = above[0], b = below[0];
  for (int i = 1; i < 8; i++) {
    a = a * x + above[i];
    b = b * x + below[i];
  }
  return a / b;
}

double normal_quantile(double p) {
  static const double centre[2][8] = {
      {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
       1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0},
      {5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
       5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0}};
  static const double middle[2][8] = {
      {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
       1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0,
       1.42343711074968357734e0},
      {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
       1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
       2.05319162663775882187e0, 1.0}};
  static const double tail[2][8] = {
      {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
       2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
       5.46378491116411436990e0, 6.65790464350110377720e0},
      {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
       7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
       5.99832206555887937690e-1, 1.0}};
  double q = p - 0.5, r;
  if (fabs(q) <= 0.425)
    return q * ratio(centre[0], centre[1], 0.180625 - q * q);
  r = sqrt(-log(q < 0 ? p : 1 - p));
  r = r <= 5 ? ratio(middle[0], middle[1], r - 1.6) : ratio(tail[0], tail[1], r - 5);
  return q < 0 ? -r : r;
}

double draw_truncated(struct draw *draw, double mu, double sigma, const double range[2]) {
  double from = normal_cdf((range[0] - mu) / sigma), to = normal_cdf((range[1] - mu) / sigma);
  double p = from + (draw_uniform(draw) + 0x1p-54) * (to - from), x;
  if (p < 0x1p-60)
    p = 0x1p-60;
  x = p >= 1 ? range[1] : mu + sigma * normal_quantile(p);
  return x < range[0] ? range[0] : x > range[1] ? range[1] : x;
}

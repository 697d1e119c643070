/* Expected improvement. */
#include "common/sweep/improvement.h"

#include <math.h>

#include "common/sweep/draw.h"

enum { TERMS = 7 };

static const double FAR = -10, LOG_DENSITY_0 = -0.91893853320467274178; /* of the normal density at 0 */

/* 1 + z * cdf(z) / density(z), for z < 0: what the improvement is beside the density. */
static double remainder_of(double z) {
  double u = -z * M_SQRT1_2, term = 1, sum = 0;
  if (z > FAR)
    return 1 + z * exp(u * u) * erfc(u) / (M_2_SQRTPI * M_SQRT1_2);
  for (int k = 1; k <= TERMS; k++) { /* the asymptotic series of Mills' ratio */
    term *= (k == 1 ? 1 : -(2 * k - 1)) / (z * z);
    sum += term;
  }
  return sum;
}

struct improvement improvement_below(double best, double mean, double variance) {
  double sigma = sqrt(variance), z = (best - mean) / sigma, log_h, density_share, cdf_share;
  if (z > -1) {
    double h = normal_density(z) + z * normal_cdf(z);
    log_h = log(h);
    density_share = normal_density(z) / h;
    cdf_share = normal_cdf(z) / h;
  } else {
    double remainder = remainder_of(z);
    log_h = LOG_DENSITY_0 - 0.5 * z * z + log(remainder);
    density_share = 1 / remainder;
    cdf_share = (1 - density_share) / z;
  }
  return (struct improvement){.log = log(sigma) + log_h,
                              .by_mean = -cdf_share / sigma,
                              .by_variance = density_share / sigma * (0.5 / sigma)};
}

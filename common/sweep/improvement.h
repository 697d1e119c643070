/* Expected improvement of a normal distribution below a value (Jones, Schonlau and Welch, 1998), as a
   logarithm that stays exact where the improvement is too small for a double (Ament et al., Unexpected
   improvements to expected improvement, 2023). */
#ifndef WEIR_COMMON_SWEEP_IMPROVEMENT_H
#define WEIR_COMMON_SWEEP_IMPROVEMENT_H

struct improvement {
  double log;     /* of the expected improvement */
  double by_mean; /* the derivatives of that logarithm */
  double by_variance;
};

struct improvement improvement_below(double best, double mean, double variance);

#endif

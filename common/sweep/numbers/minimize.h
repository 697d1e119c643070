/* Minima of smooth functions within bounds. */
#ifndef WEIR_COMMON_SWEEP_NUMBERS_MINIMIZE_H
#define WEIR_COMMON_SWEEP_NUMBERS_MINIMIZE_H

enum { MINIMIZE_DIMENSIONS_MAX = 72 };

struct minimization {
  int n;                    /* at most MINIMIZE_DIMENSIONS_MAX */
  const double *low, *high; /* f64[n] */
  /* The value at x, f64[n], and its gradient there. A value that is not finite is worse than all others. */
  double (*value)(void *context, const double *x, double *gradient);
  void *context;
  int evaluations;  /* at most */
  double tolerance; /* stops when a step gains less, relative to the value and 1 */
};

/* Moves x, within the bounds, to where the value is smaller: Broyden, Fletcher, Goldfarb and Shanno's method
   over the variables that are not held by a bound, each step cut back until it gains enough (Armijo).
   Deterministic. Returns the value there; INFINITY, with x as it was, where the value at x is not finite. */
double minimize(const struct minimization *minimization, double *x);

#endif

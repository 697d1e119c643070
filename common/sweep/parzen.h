/* Kernel densities over a space: a weighted sum of kernels, each the product of one factor a dimension. The
   factor of a number is a normal distribution within [0, 1), of a number with a step its mass over the
   value's share; of a choice it is one probability for the kernel's own value and another for each other
   value. */
#ifndef WEIR_COMMON_SWEEP_PARZEN_H
#define WEIR_COMMON_SWEEP_PARZEN_H

#include "common/base/memory.h"
#include "common/sweep/draw.h"
#include "common/sweep/space.h"

/* A dimension's factors. */
struct parzen_axis {
  int dimension;
  double *at;        /* f64[n_kernels]: position or index; NAN of a choice: all values alike */
  double *sigma;     /* f64[n_kernels], above 0; of numbers */
  double own, other; /* of a choice: probabilities of the kernel's own value and of each other one */
  double
      *constant; /* f64[n_kernels]: of a number's factor, the logarithm of what all points have in common */
};

struct parzen {
  const struct space *space;
  int n_kernels, n_axes;
  bool is_open; /* densities of numbers are of the whole line: near a bound they lose what lies beyond it */
  double *weights; /* f64[n_kernels], any sum above 0 */
  struct parzen_axis axes[SPACE_DIMENSIONS_MAX];
  double *log_weights; /* of weights whose sum is 1 */
};

/* Room for a density; lives as long as the arena. n_kernels > 0. The caller fills weights, and adds axes with
   parzen_add_axis, whose arrays it fills; then it calls parzen_prepare. */
void parzen_init(struct parzen *parzen, const struct space *space, int n_kernels, struct arena *arena);
struct parzen_axis *parzen_add_axis(struct parzen *parzen, int dimension, struct arena *arena);
void parzen_prepare(struct parzen *parzen);

/* Writes the axes' entries of the point. Normal factors are `widen` times as wide (1: as they are). */
void parzen_draw(const struct parzen *parzen, double widen, struct draw *draw, double *point);

/* The logarithm of the density at the axes' entries, over those that are not NAN; -INFINITY for 0. */
double parzen_log_density(const struct parzen *parzen, const double *point);

#endif

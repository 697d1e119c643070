/* Minima of smooth functions within bounds. */
#include "common/sweep/numbers/minimize.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/err.h"
#include "common/sweep/numbers/matrix.h"

enum { MAX = MINIMIZE_DIMENSIONS_MAX, CUTS_MAX = 20 };

/* Under way. */
struct descent {
  const struct minimization *of;
  double x[MAX], gradient[MAX], value;
  double inverse[MAX * MAX]; /* f64[n,n]: of the Hessian, as it is known */
  double direction[MAX];
  int evaluations;
};

static double evaluate(struct descent *descent, const double *x, double *gradient) {
  double value = descent->of->value(descent->of->context, x, gradient);
  descent->evaluations++;
  for (int i = 0; i < descent->of->n; i++)
    if (!isfinite(gradient[i]))
      return INFINITY;
  return isfinite(value) ? value : INFINITY;
}

static void inverse_reset(struct descent *descent) {
  int n = descent->of->n;
  memset(descent->inverse, 0, sizeof descent->inverse);
  for (int i = 0; i < n; i++)
    descent->inverse[i * n + i] = 1;
}

static bool is_held(const struct descent *descent, int i) {
  return (descent->x[i] <= descent->of->low[i] && descent->gradient[i] > 0) ||
         (descent->x[i] >= descent->of->high[i] && descent->gradient[i] < 0);
}

/* The slope along the direction; the direction is steepest descent where the Hessian says nothing better. */
static double direction_find(struct descent *descent) {
  int n = descent->of->n;
  for (int attempt = 0; attempt < 2; attempt++) {
    double slope = 0, length = 0;
    for (int i = 0; i < n; i++) {
      double sum = 0;
      for (int j = 0; j < n; j++)
        sum -= is_held(descent, j) ? 0 : descent->inverse[i * n + j] * descent->gradient[j];
      descent->direction[i] = is_held(descent, i) ? 0 : sum;
      slope += descent->direction[i] * descent->gradient[i];
      length += descent->direction[i] * descent->direction[i];
    }
    if (slope < 0 && isfinite(length))
      return slope;
    inverse_reset(descent);
  }
  return 0;
}

/* The BFGS update of the inverse, for a step s that changed the gradient by y. */
static void inverse_update(struct descent *descent, const double *s, const double *y) {
  int n = descent->of->n;
  double sy = vector_dot(s, y, n), hy[MAX], yhy;
  if (!(sy > 1e-12 * sqrt(vector_dot(s, s, n) * vector_dot(y, y, n))))
    return;
  for (int i = 0; i < n; i++)
    hy[i] = vector_dot(descent->inverse + i * n, y, n);
  yhy = vector_dot(y, hy, n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      descent->inverse[i * n + j] += ((sy + yhy) / sy * s[i] * s[j] - hy[i] * s[j] - s[i] * hy[j]) / sy;
}

/* One step along the direction; false if none gains. */
static bool step_take(struct descent *descent, double slope, double first) {
  int n = descent->of->n;
  double t = first, next[MAX], gradient[MAX], s[MAX], y[MAX];
  for (int cut = 0; cut < CUTS_MAX && descent->evaluations < descent->of->evaluations; cut++, t *= 0.5) {
    double value;
    for (int i = 0; i < n; i++)
      next[i] =
          fmin(fmax(descent->x[i] + t * descent->direction[i], descent->of->low[i]), descent->of->high[i]);
    value = evaluate(descent, next, gradient);
    if (!(value <= descent->value + 1e-4 * t * slope))
      continue;
    for (int i = 0; i < n; i++) {
      s[i] = next[i] - descent->x[i];
      y[i] = gradient[i] - descent->gradient[i];
    }
    inverse_update(descent, s, y);
    memcpy(descent->x, next, (size_t)n * sizeof *next);
    memcpy(descent->gradient, gradient, (size_t)n * sizeof *gradient);
    descent->value = value;
    return true;
  }
  return false;
}

double minimize(const struct minimization *minimization, double *x) {
  int n = minimization->n;
  struct descent descent = {.of = minimization};
  CHECK(n <= MAX);
  memcpy(descent.x, x, (size_t)n * sizeof *x);
  inverse_reset(&descent);
  descent.value = evaluate(&descent, descent.x, descent.gradient);
  if (!isfinite(descent.value))
    return INFINITY;
  for (bool is_first = true; descent.evaluations < minimization->evaluations; is_first = false) {
    double before = descent.value, slope = direction_find(&descent), length;
    if (!(slope < 0))
      break;
    length = sqrt(vector_dot(descent.direction, descent.direction, n));
    if (!step_take(&descent, slope, is_first && length > 0.1 ? 0.1 / length : 1))
      break;
    if (before - descent.value < minimization->tolerance * (fabs(descent.value) + 1))
      break;
  }
  memcpy(x, descent.x, (size_t)n * sizeof *x);
  return descent.value;
}

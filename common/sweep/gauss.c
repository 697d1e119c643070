/* A Gaussian process over points of a space. */
#include "common/sweep/gauss.h"

#include <math.h>
#include <string.h>

#include "common/sweep/improvement.h"
#include "common/sweep/numbers/matrix.h"
#include "common/sweep/numbers/minimize.h"

enum { FIT_EVALUATIONS = 40 };

static const double NOISE_LEAST = 1e-6, VARIANCE_LEAST = 1e-10, SQRT_5 = 2.23606797749978969641;

void gauss_place(const struct space *space, const double *point, double *place) {
  for (int i = 0; i < space->n; i++) {
    double inactive = space->dimensions[i].kind == DIMENSION_CHOICE ? -1 : 0.5;
    place[i] = isnan(point[i]) ? inactive : point[i];
  }
}

/* The square of a dimension's difference. */
static inline double difference(const struct space *space, int i, double a, double b) {
  if (space->dimensions[i].kind == DIMENSION_CHOICE)
    return a != b;
  return (a - b) * (a - b);
}

/* Matern's kernel of a squared distance; *slope is its derivative by that square. */
static inline double matern(double square, double *slope) {
  double r = SQRT_5 * sqrt(square), decay = exp(-r);
  *slope = -(5.0 / 6) * (1 + r) * decay;
  return (1 + r + r * r / 3) * decay;
}

static void parameters_read(struct gauss *gauss, const double *parameters) {
  int n = gauss->space->n;
  memcpy(gauss->parameters, parameters, ((size_t)n + 2) * sizeof *parameters);
  for (int i = 0; i < n; i++)
    gauss->scales[i] = exp(parameters[i]);
  gauss->signal = exp(parameters[n]);
  gauss->noise = exp(parameters[n + 1]);
}

static double distance(const struct gauss *gauss, const double *a, const double *b) {
  double square = 0;
  for (int i = 0; i < gauss->space->n; i++)
    square += gauss->scales[i] * difference(gauss->space, i, a[i], b[i]);
  return square;
}

/* The lower triangle of the covariance of the values; slopes, where it is not NULL, gets the kernel's
   derivatives by squared distances. */
static void covariance_make(const struct gauss *gauss, double *out, double *slopes) {
  int n = gauss->n_points, n_dimensions = gauss->space->n;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) {
      double slope;
      long at = (long)i * n + j;
      out[at] = gauss->signal * matern(distance(gauss, gauss->places + (long)i * n_dimensions,
                                                gauss->places + (long)j * n_dimensions),
                                       &slope);
      if (slopes)
        slopes[at] = gauss->signal * slope;
    }
    out[(long)i * n + i] = gauss->signal + gauss->noise;
  }
}

/* Minus the logarithm of the prior density, and its derivatives by parameters added to slopes. */
static double prior(const struct gauss *gauss, bool is_exact, double *slopes) {
  int n = gauss->space->n;
  double sum = 0;
  for (int i = 0; i < n; i++) {
    sum += 0.1 / gauss->scales[i] + 0.1 * gauss->scales[i];
    slopes[i] += -0.1 / gauss->scales[i] + 0.1 * gauss->scales[i];
  }
  sum += gauss->signal - gauss->parameters[n];
  slopes[n] += gauss->signal - 1;
  if (!is_exact) {
    sum += 30 * gauss->noise - 0.1 * gauss->parameters[n + 1];
    slopes[n + 1] += 30 * gauss->noise - 0.1;
  }
  return sum;
}

/* The fit under way: memory of one evaluation. */
struct fit {
  struct gauss *gauss;
  bool is_exact;
  double *factor, *slopes, *inverse, *alpha;
};

/* Minus half the derivatives of the likelihood: traces of (alpha alpha' - K^-1) with the kernel's
   derivatives. */
static void likelihood_slopes(const struct fit *fit, double *slopes) {
  const struct gauss *gauss = fit->gauss;
  int n = gauss->n_points, n_dimensions = gauss->space->n;
  for (int i = 0; i < n; i++) {
    const double *a = gauss->places + (long)i * n_dimensions;
    double own = fit->alpha[i] * fit->alpha[i] - fit->inverse[(long)i * n + i];
    for (int j = 0; j < i; j++) {
      const double *b = gauss->places + (long)j * n_dimensions;
      long at = (long)i * n + j;
      double weight = fit->alpha[i] * fit->alpha[j] - fit->inverse[at];
      double by_square = weight * fit->slopes[at];
      for (int d = 0; d < n_dimensions; d++)
        slopes[d] -= by_square * gauss->scales[d] * difference(gauss->space, d, a[d], b[d]);
      slopes[n_dimensions] -= weight * fit->factor[(long)j * n + i]; /* the kernel, above the diagonal */
    }
    slopes[n_dimensions] -= 0.5 * own * gauss->signal;
    slopes[n_dimensions + 1] -= 0.5 * own * gauss->noise;
  }
}

/* Minus the logarithm of the posterior density of parameters. */
static double fit_value(void *context, const double *parameters, double *slopes) {
  struct fit *fit = context;
  struct gauss *gauss = fit->gauss;
  int n = gauss->n_points, n_dimensions = gauss->space->n;
  double value = 0;
  parameters_read(gauss, parameters);
  memset(slopes, 0, ((size_t)n_dimensions + 2) * sizeof *slopes);
  covariance_make(gauss, fit->factor, fit->slopes);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      fit->factor[(long)j * n + i] = fit->factor[(long)i * n + j];
  if (!matrix_cholesky(fit->factor, n))
    return INFINITY;
  memcpy(fit->alpha, gauss->values, (size_t)n * sizeof *fit->alpha);
  matrix_solve_lower(fit->factor, n, fit->alpha);
  for (int i = 0; i < n; i++)
    value += 0.5 * fit->alpha[i] * fit->alpha[i] + log(fit->factor[(long)i * n + i]);
  matrix_solve_upper(fit->factor, n, fit->alpha);
  matrix_inverse(fit->factor, n, fit->inverse);
  likelihood_slopes(fit, slopes);
  return value + prior(gauss, fit->is_exact, slopes);
}

void gauss_fit(struct gauss *gauss, bool is_exact, struct arena *arena) {
  int n_dimensions = gauss->space->n, n = n_dimensions + 2;
  size_t size = (size_t)gauss->n_points * (size_t)gauss->n_points * sizeof(double);
  double low[GAUSS_PARAMETERS_MAX], high[GAUSS_PARAMETERS_MAX], at[GAUSS_PARAMETERS_MAX];
  struct fit fit = {gauss,
                    is_exact,
                    arena_new(arena, size),
                    arena_new(arena, size),
                    arena_new(arena, size),
                    arena_new(arena, (size_t)gauss->n_points * sizeof(double))};
  struct minimization minimization = {n, low, high, fit_value, &fit, FIT_EVALUATIONS, 1e-5};
  for (int i = 0; i < n; i++) {
    low[i] = log(1e-4);
    high[i] = log(1e4);
    at[i] = 0;
  }
  low[n - 1] = log(NOISE_LEAST);
  high[n - 1] = is_exact ? low[n - 1] : 0;
  at[n - 1] = is_exact ? low[n - 1] : log(1e-2);
  minimize(&minimization, at);
  parameters_read(gauss, at);
}

/* Points so near to each other that rounding makes the covariance singular get more noise. */
void gauss_condition(struct gauss *gauss, struct arena *arena) {
  int n = gauss->n_points;
  size_t size = (size_t)n * (size_t)n * sizeof(double);
  gauss->factor = arena_new(arena, size);
  gauss->alpha = arena_copy(arena, gauss->values, (size_t)n * sizeof(double));
  covariance_make(gauss, gauss->factor, NULL);
  while (!matrix_cholesky(gauss->factor, n)) {
    gauss->noise *= 10;
    covariance_make(gauss, gauss->factor, NULL);
  }
  matrix_solve_lower(gauss->factor, n, gauss->alpha);
  matrix_solve_upper(gauss->factor, n, gauss->alpha);
}

/* The covariances with the points, and where slopes is not NULL the kernel's derivatives by the squared
   distances. */
static void covariances_with(const struct gauss *gauss, const double *place, double *out, double *slopes) {
  int n_dimensions = gauss->space->n;
  for (int i = 0; i < gauss->n_points; i++) {
    double slope;
    out[i] = gauss->signal * matern(distance(gauss, place, gauss->places + (long)i * n_dimensions), &slope);
    if (slopes)
      slopes[i] = gauss->signal * slope;
  }
}

struct gauss_guess gauss_predict(const struct gauss *gauss, const double *place, double *work) {
  int n = gauss->n_points;
  struct gauss_guess guess;
  covariances_with(gauss, place, work, NULL);
  guess.mean = vector_dot(work, gauss->alpha, n);
  matrix_solve_lower(gauss->factor, n, work);
  guess.variance = fmax(gauss->signal - vector_dot(work, work, n), VARIANCE_LEAST);
  return guess;
}

struct gauss_guess gauss_predict_slopes(const struct gauss *gauss, const double *place, double *work,
                                        double *mean_slopes, double *variance_slopes) {
  int n = gauss->n_points, n_dimensions = gauss->space->n;
  double *slopes = work + n;
  struct gauss_guess guess;
  covariances_with(gauss, place, work, slopes);
  guess.mean = vector_dot(work, gauss->alpha, n);
  matrix_solve_lower(gauss->factor, n, work);
  guess.variance = fmax(gauss->signal - vector_dot(work, work, n), VARIANCE_LEAST);
  matrix_solve_upper(gauss->factor, n, work); /* the inverse times the covariances */
  memset(mean_slopes, 0, (size_t)n_dimensions * sizeof *mean_slopes);
  memset(variance_slopes, 0, (size_t)n_dimensions * sizeof *variance_slopes);
  for (int i = 0; i < n; i++)
    for (int d = 0; d < n_dimensions; d++) {
      double by_place;
      if (gauss->space->dimensions[d].kind == DIMENSION_CHOICE)
        continue;
      by_place = 2 * gauss->scales[d] * (place[d] - gauss->places[(long)i * n_dimensions + d]) * slopes[i];
      mean_slopes[d] += gauss->alpha[i] * by_place;
      variance_slopes[d] -= 2 * work[i] * by_place;
    }
  return guess;
}

double gauss_improvement(const struct gauss *gauss, double best, const double *place, double *work,
                         double *slopes) {
  double by_mean[SPACE_DIMENSIONS_MAX], by_variance[SPACE_DIMENSIONS_MAX];
  struct gauss_guess guess = slopes ? gauss_predict_slopes(gauss, place, work, by_mean, by_variance)
                                    : gauss_predict(gauss, place, work);
  struct improvement improvement = improvement_below(best, guess.mean, guess.variance);
  for (int d = 0; slopes && d < gauss->space->n; d++)
    slopes[d] = improvement.by_mean * by_mean[d] + improvement.by_variance * by_variance[d];
  return improvement.log;
}

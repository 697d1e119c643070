/* A Gaussian process over points of a space, with Matern's kernel of smoothness 5/2 and one length scale for
   each dimension (Rasmussen and Williams, 2006). Values of choices are equally far from each other; where a
   dimension is not active, a number counts as the middle, and a choice as one more value. */
#ifndef WEIR_COMMON_SWEEP_GAUSS_H
#define WEIR_COMMON_SWEEP_GAUSS_H

#include "common/base/memory.h"
#include "common/sweep/space.h"

enum { GAUSS_POINTS_MAX = 500 };

/* In logarithms: the inverse squares of the length scales f64[n], the signal's variance, the noise's. */
enum { GAUSS_PARAMETERS_MAX = SPACE_DIMENSIONS_MAX + 2 };

struct gauss {
  const struct space *space;
  int n_points;
  double *places;       /* f64[n_points,n]: points with a number in every entry */
  const double *values; /* f64[n_points] */
  double parameters[GAUSS_PARAMETERS_MAX];
  double scales[SPACE_DIMENSIONS_MAX], signal, noise; /* what the parameters are logarithms of */
  double *factor;                                     /* f64[n_points,n_points]: Cholesky's */
  double *alpha;                                      /* f64[n_points]: the inverse times the values */
};

/* A point as a place, f64[n] both. */
void gauss_place(const struct space *space, const double *point, double *place);

/* Chooses parameters at which values of points are the most probable, with priors that keep them moderate
   (those of Optuna's GPSampler). places f64[n_points,n], values f64[n_points] with mean 0 and variance 1:
   borrowed. The noise is fixed at its least value where is_exact. */
void gauss_fit(struct gauss *gauss, bool is_exact, struct arena *arena);

/* Conditions the process on its points, at its parameters; n_points at most GAUSS_POINTS_MAX. */
void gauss_condition(struct gauss *gauss, struct arena *arena);

struct gauss_guess {
  double mean, variance;
};

/* What the process says of the value, without noise, at a place. work: f64[2 * n_points]. */
struct gauss_guess gauss_predict(const struct gauss *gauss, const double *place, double *work);

/* The same, with derivatives by the place's numbers f64[n]; of choices 0. */
struct gauss_guess gauss_predict_slopes(const struct gauss *gauss, const double *place, double *work,
                                        double *mean_slopes, double *variance_slopes);

/* The logarithm of the expected improvement below `best` at a place, and its derivatives by the place's
   numbers f64[n] where slopes is not NULL. work: f64[2 * n_points]. */
double gauss_improvement(const struct gauss *gauss, double best, const double *place, double *work,
                         double *slopes);

#endif

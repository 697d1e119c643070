/* Random numbers of one trial, and the normal distribution. Draws come from counters of (seed, trial,
   stream). */
#ifndef WEIR_COMMON_SWEEP_DRAW_H
#define WEIR_COMMON_SWEEP_DRAW_H

#include <stdint.h>

/* A stream of draws; the caller's memory. */
struct draw {
  uint64_t key;
  uint64_t index; /* of the next one */
};

/* Streams of other seeds, trials or numbers have nothing in common. */
struct draw draw_begin(uint64_t seed, uint64_t trial, uint64_t stream);

double draw_uniform(struct draw *draw);                 /* in [0, 1), 53 bits */
uint32_t draw_below(struct draw *draw, uint32_t count); /* 0 <= draw < count; count > 0 */
double draw_normal(struct draw *draw);                  /* mean 0, standard deviation 1 */
/* Index of a weight, with a probability in proportion; f64[n], not negative, some above 0. */
int draw_weighted(struct draw *draw, const double *weights, int n);

double normal_cdf(double x);
double normal_density(double x);
/* The x of which normal_cdf is p, 0 < p < 1 (Wichura, 1988: algorithm AS 241, PPND16; 16 digits). */
double normal_quantile(double p);
/* Normal of mean mu and standard deviation sigma > 0 within [low, high], which holds mu. */
double draw_truncated(struct draw *draw, double mu, double sigma, const double range[2]);

#endif

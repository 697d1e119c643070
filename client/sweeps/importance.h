/* Which dimensions matter for a result: functional analysis of variance on a random forest (Hutter, Hoos and
   Leyton-Brown, 2014). Pure.

   Each regression tree is a function over the whole space. A dimension's marginal is the tree's mean over all
   other dimensions, each of which is uniform over its range. The dimension's importance is the variance of
   its marginal as a share of the tree's variance, averaged over the trees. What is left is due to dimensions
   together. */
#ifndef WEIR_CLIENT_SWEEPS_IMPORTANCE_H
#define WEIR_CLIENT_SWEEPS_IMPORTANCE_H

enum { IMPORTANCE_TREES = 64, IMPORTANCE_BUCKETS = 16, IMPORTANCE_SAMPLES_MAX = 2000 };

/* n samples of d dimensions. */
struct importance_data {
  int n, d;
  const double *x;      /* f64[n, d], in [0, 1); below 0: the dimension is not active in that sample */
  const double *y;      /* f64[n] */
  const double *absent; /* f64[d]: the share of the space in which a dimension is not active, 0 to 1 */
};

struct importance {
  double share;                        /* of the variance, 0 to 1 */
  double marginal[IMPORTANCE_BUCKETS]; /* the mean result in equal parts of [0, 1) */
};

/* out: [d]. The same for the same data. Samples are looked at as they come; at most IMPORTANCE_SAMPLES_MAX.
   Where all results are alike, every share is 0. */
void importance_find(const struct importance_data *data, struct importance *out);

#endif

/* Resampling: each element of the result is a weighted sum of input elements, with weights that are a product
   of one factor per axis. The factors are tables, made once a call, so that a tensor and its gradient are
   resampled with the same weights. */
#ifndef WEIR_MODEL_OPS_SHARED_RESAMPLE_H
#define WEIR_MODEL_OPS_SHARED_RESAMPLE_H

#include <math.h>

#include "model/graph/graph.h"

/* One axis: its result o is the sum over t < taps of weight[o * taps + t] * input[from[o * taps + t]]. */
struct resample_axis {
  int64_t in, out;
  int64_t taps;
  int64_t *from;    /* NULL: the axis is kept as it is */
  float *weight;    /* the sum is 1 for each o, or 0 where it is outside */
  bool *is_outside; /* [out] gets the fill instead; NULL: nowhere */
};

struct resample {
  int rank; /* axes that are kept and lie side by side are one */
  struct resample_axis axis[RANK_MAX];
  float fill;
};

/* Adds an axis that is kept as it is. */
void resample_keep(struct resample *resample, int64_t dim);
/* Adds an axis whose tables the caller fills: NULL when out of memory. */
struct resample_axis *resample_axis_new(struct resample *resample, int64_t in, int64_t out, int64_t taps,
                                        bool has_outside);
void resample_fini(struct resample *resample);

/* x -> y */
void resample_forward(const struct resample *resample, const float *x, float *y);
/* dy -> dx */
void resample_backward(const struct resample *resample, const float *dy, float *dx);

#endif

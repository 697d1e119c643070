/* Resampling with per-axis tables of weights. */
#include "model/ops/shared/resample.h"

#include <stdlib.h>
#include <string.h>

void resample_keep(struct resample *resample, int64_t dim) {
  struct resample_axis *last = resample->rank > 0 ? &resample->axis[resample->rank - 1] : NULL;
  if (last && !last->from)
    last->in = last->out = last->out * dim;
  else
    resample->axis[resample->rank++] = (struct resample_axis){.in = dim, .out = dim, .taps = 1};
}

struct resample_axis *resample_axis_new(struct resample *resample, int64_t in, int64_t out, int64_t taps,
                                        bool has_outside) {
  struct resample_axis *axis = &resample->axis[resample->rank];
  int64_t entries;
  *axis = (struct resample_axis){.in = in, .out = out, .taps = taps};
  if (__builtin_mul_overflow(out, taps, &entries) || entries > PTRDIFF_MAX / (int64_t)sizeof *axis->from)
    return NULL;
  axis->from = malloc((size_t)entries * sizeof *axis->from + 1);
  axis->weight = malloc((size_t)entries * sizeof *axis->weight + 1);
  axis->is_outside = has_outside ? calloc((size_t)out + 1, 1) : NULL;
  resample->rank++;
  return axis->from && axis->weight && (axis->is_outside || !has_outside) ? axis : NULL;
}

void resample_fini(struct resample *resample) {
  for (int d = 0; d < resample->rank; d++) {
    free(resample->axis[d].from);
    free(resample->axis[d].weight);
    free(resample->axis[d].is_outside);
  }
}

/* A walk over the rows of the result along the innermost axis, and for each over the rows of the input that
   it depends on. */
struct walk {
  const struct resample *resample;
  int64_t stride[RANK_MAX]; /* of the input */
  int64_t at[RANK_MAX];     /* the present row of the result */
  void (*row)(const struct resample_axis *axis, float weight, float *x, float *y);
};

/* y += weight * the row x resampled */
static void row_forward(const struct resample_axis *axis, float weight, float *x, float *y) {
  const int64_t *from = axis->from;
  const float *w = axis->weight;
  if (!from) {
    for (int64_t o = 0; o < axis->out; o++)
      y[o] += weight * x[o];
  } else if (axis->taps == 1) {
    for (int64_t o = 0; o < axis->out; o++)
      y[o] += weight * w[o] * x[from[o]];
  } else if (axis->taps == 2) {
    for (int64_t o = 0; o < axis->out; o++)
      y[o] += weight * (w[2 * o] * x[from[2 * o]] + w[2 * o + 1] * x[from[2 * o + 1]]);
  } else {
    for (int64_t o = 0; o < axis->out; o++, from += axis->taps, w += axis->taps) {
      float sum = 0.0f;
      for (int64_t t = 0; t < axis->taps; t++)
        sum += w[t] * x[from[t]];
      y[o] += weight * sum;
    }
  }
}

/* The transpose: x += weight * the row y, spread. */
static void row_backward(const struct resample_axis *axis, float weight, float *x, float *y) {
  const int64_t *from = axis->from;
  const float *w = axis->weight;
  for (int64_t o = 0; o < axis->out; o++) {
    if (!from)
      x[o] += weight * y[o];
    for (int64_t t = 0; from && t < axis->taps; t++)
      x[from[o * axis->taps + t]] += weight * w[o * axis->taps + t] * y[o];
  }
}

/* The taps of axis d and those behind it, of the present row. */
static void row_taps(const struct walk *walk, int d, float weight, float *x, float *y) {
  const struct resample_axis *axis = &walk->resample->axis[d];
  int64_t first = walk->at[d] * axis->taps;
  if (d == walk->resample->rank - 1) {
    walk->row(axis, weight, x, y);
  } else if (!axis->from) {
    row_taps(walk, d + 1, weight, x + walk->at[d] * walk->stride[d], y);
  } else {
    for (int64_t t = first; t < first + axis->taps; t++)
      if (axis->weight[t] != 0.0f)
        row_taps(walk, d + 1, weight * axis->weight[t], x + axis->from[t] * walk->stride[d], y);
  }
}

static bool row_is_outside(const struct walk *walk) {
  for (int d = 0; d < walk->resample->rank - 1; d++)
    if (walk->resample->axis[d].is_outside && walk->resample->axis[d].is_outside[walk->at[d]])
      return true;
  return false;
}

static struct walk walk_init(const struct resample *resample, int64_t *rows) {
  struct walk walk = {.resample = resample};
  int64_t stride = 1;
  *rows = 1;
  for (int d = resample->rank - 1; d >= 0; d--) {
    walk.stride[d] = stride;
    stride *= resample->axis[d].in;
    if (d < resample->rank - 1)
      *rows *= resample->axis[d].out;
  }
  return walk;
}

static void walk_next(struct walk *walk) {
  for (int d = walk->resample->rank - 2; d >= 0; d--) {
    if (++walk->at[d] < walk->resample->axis[d].out)
      return;
    walk->at[d] = 0;
  }
}

void resample_forward(const struct resample *resample, const float *x, float *y) {
  const struct resample_axis *inner = &resample->axis[resample->rank - 1];
  int64_t rows;
  struct walk walk = walk_init(resample, &rows);
  walk.row = row_forward;
  for (int64_t r = 0; r < rows; r++, walk_next(&walk), y += inner->out) {
    bool is_outside = row_is_outside(&walk);
    for (int64_t o = 0; o < inner->out; o++)
      y[o] = is_outside || (inner->is_outside && inner->is_outside[o]) ? resample->fill : 0.0f;
    if (!is_outside)
      row_taps(&walk, 0, 1.0f, (float *)x, y);
  }
}

void resample_backward(const struct resample *resample, const float *dy, float *dx) {
  const struct resample_axis *inner = &resample->axis[resample->rank - 1];
  int64_t rows, elems = 1;
  struct walk walk = walk_init(resample, &rows);
  walk.row = row_backward;
  for (int d = 0; d < resample->rank; d++)
    elems *= resample->axis[d].in;
  memset(dx, 0, (size_t)elems * sizeof *dx);
  for (int64_t r = 0; r < rows; r++, walk_next(&walk), dy += inner->out)
    if (!row_is_outside(&walk))
      row_taps(&walk, 0, 1.0f, dx, (float *)dy);
}

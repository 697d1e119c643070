/* Discrete Fourier transforms of lines of any length, and their adjoints, in f64. */
#ifndef WEIR_MODEL_OPS_SHARED_FOURIER_H
#define WEIR_MODEL_OPS_SHARED_FOURIER_H

#include "model/graph/op.h"

/* One end of a transform: `count` elements, of which the first `used` take part. The others are not read, or
   are written as 0. */
struct fourier_end {
  int64_t count, used; /* used <= length */
  int parts;           /* 1: real numbers, 2: complex ones */
  bool is_half;        /* of a spectrum whose other half is its mirror image: what has one counts twice */
};

/* y[k] = scale sum_j x[j] e^(direction 2 pi i j k / length) */
struct fourier {
  int64_t length;
  int direction; /* -1 forward, 1 inverse */
  double scale;
  struct fourier_end in, out;
};

/* Tables and room for one transform at a time. */
struct fourier_plan {
  struct fourier fourier;
  double (*root)[2], (*in)[2], (*out)[2], (*work)[2]; /* [length], in one piece */
};

/* The transform whose matrix, of real numbers, is the transposed one: it takes gradients back. */
struct fourier fourier_adjoint(const struct fourier *fourier);

/* Errors: NO_MEMORY. */
int fourier_plan_init(struct fourier_plan *plan, const struct fourier *fourier, const struct node *node,
                      struct err *err);
void fourier_plan_fini(struct fourier_plan *plan);

/* Transforms plan->in, whose elements behind in.used are not read, to plan->out. */
void fourier_transform(struct fourier_plan *plan);

/* The same from x to y, whose elements lie `stride` numbers apart. */
void fourier_line(struct fourier_plan *plan, const float *x, int64_t x_stride, float *y, int64_t y_stride);

#endif

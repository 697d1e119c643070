/* What Resize, Upsample and their gradient read from their nodes. */
#ifndef WEIR_MODEL_OPS_SHARED_RESIZE_H
#define WEIR_MODEL_OPS_SHARED_RESIZE_H

#include "model/graph/op.h"
#include "model/ops/shared/resample.h"

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

/* coordinate_transformation_mode: which coordinate of the input one of the result stands for */
enum resize_coordinates {
  COORDINATES_HALF_PIXEL,
  COORDINATES_HALF_PIXEL_SYMMETRIC,
  COORDINATES_PYTORCH_HALF_PIXEL,
  COORDINATES_ALIGN_CORNERS,
  COORDINATES_ASYMMETRIC,
  COORDINATES_TF_HALF_PIXEL,
  COORDINATES_TF_CROP_AND_RESIZE,
};

/* nearest_mode */
enum resize_rounding { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, ROUND_FLOOR, ROUND_CEIL };

struct resize {
  enum resize_mode mode;
  enum resize_coordinates coordinates;
  enum resize_rounding rounding;
  bool is_antialiased, excludes_outside;
  double cubic_a;
  float fill; /* extrapolation_value */
  struct shape in, out;
  double scale[RANK_MAX], length[RANK_MAX]; /* length: of the result, which need not be whole */
  double begin[RANK_MAX], end[RANK_MAX];    /* roi */
};

/* Reads a node whose data has shape `in`. Errors: INVALID; UNSUPPORTED for scales, sizes or a region that
   are not known before execution. */
int resize_read(const struct graph *graph, const struct node *node, const struct shape *in,
                struct resize *resize, struct err *err);

/* True for Upsample, and Resize before opset 11: scales are input 1, coordinates asymmetric, rounded down. */
bool resize_is_old(const struct graph *graph, const struct node *node);

/* The tables. Errors: INVALID, NO_MEMORY; resample_fini in any case. */
int resize_tables(const struct resize *resize, const struct node *node, struct resample *resample,
                  struct err *err);

#endif

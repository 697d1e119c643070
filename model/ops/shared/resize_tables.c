/* Resize's weights: which input elements each coordinate of the result depends on, axis by axis. */
#include "model/ops/shared/resize.h"

/* The coordinate in the input that coordinate o of the result stands for. */
static double coordinate_of(const struct resize *resize, int d, int64_t o) {
  double in = (double)resize->in.dim[d], length = resize->length[d], scale = resize->scale[d], x = (double)o;
  double part = resize->end[d] - resize->begin[d];
  switch (resize->coordinates) {
  case COORDINATES_HALF_PIXEL:
    return (x + 0.5) / scale - 0.5;
  case COORDINATES_HALF_PIXEL_SYMMETRIC:
    return in / 2.0 * (1.0 - (double)resize->out.dim[d] / length) + (x + 0.5) / scale - 0.5;
  case COORDINATES_PYTORCH_HALF_PIXEL:
    return resize->out.dim[d] > 1 ? (x + 0.5) / scale - 0.5 : 0.0;
  case COORDINATES_ALIGN_CORNERS:
    return length == 1.0 ? 0.0 : x * (in - 1.0) / (length - 1.0);
  case COORDINATES_TF_HALF_PIXEL:
    return (x + 0.5) / scale;
  case COORDINATES_TF_CROP_AND_RESIZE:
    return resize->begin[d] * (in - 1.0) +
           (length == 1.0 ? part * (in - 1.0) / 2.0 : x * part * (in - 1.0) / (length - 1.0));
  default:
    return x / scale;
  }
}

static double rounded_by(enum resize_rounding rounding, double x) {
  switch (rounding) {
  case ROUND_PREFER_FLOOR:
    return ceil(x - 0.5);
  case ROUND_PREFER_CEIL:
    return floor(x + 0.5);
  case ROUND_FLOOR:
    return floor(x);
  default:
    return ceil(x);
  }
}

/* The weight of an element at a distance, before all are made to sum up to 1. */
static double kernel_at(const struct resize *resize, double distance) {
  double x = fabs(distance), a = resize->cubic_a;
  if (resize->mode == RESIZE_LINEAR)
    return x < 1.0 ? 1.0 - x : 0.0;
  if (x <= 1.0)
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? ((x - 5.0) * x + 8.0) * x * a - 4.0 * a : 0.0;
}

/* How far the kernel reaches on each side, in input elements; it is stretched to smooth a reduction. */
static double kernel_reach(const struct resize *resize, int d, double *stretch) {
  *stretch = resize->is_antialiased && resize->scale[d] < 1.0 ? resize->scale[d] : 1.0;
  return ceil((resize->mode == RESIZE_LINEAR ? 1.0 : 2.0) / *stretch);
}

static int64_t index_within(int64_t index, int64_t n) {
  return index < 0 ? 0 : index >= n ? n - 1 : index;
}

/* The input elements that a coordinate of the result depends on. */
struct taps {
  int64_t *from;
  float *weight;
  int64_t n;
};

/* Elements beyond the edge count as those at the edge, or not at all. */
static void fill_taps(const struct resize *resize, int d, double x, double stretch, const struct taps *taps) {
  int64_t base = (int64_t)floor(x), in = resize->in.dim[d], reach = taps->n / 2;
  double sum = 0.0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t t = 0; t < taps->n; t++) {
      int64_t index = base + 1 - reach + t;
      bool counts = !resize->excludes_outside || (index >= 0 && index < in);
      double w = counts ? kernel_at(resize, ((double)index - x) * stretch) : 0.0;
      sum += pass == 0 ? w : 0.0;
      taps->from[t] = index_within(index, in);
      taps->weight[t] = (float)(sum != 0.0 ? w / sum : w);
    }
}

static int fill_axis(const struct resize *resize, int d, const struct node *node, struct resample *resample,
                     struct err *err) {
  int64_t in = resize->in.dim[d], out = resize->out.dim[d];
  bool is_cropped = resize->coordinates == COORDINATES_TF_CROP_AND_RESIZE;
  double stretch = 1.0, reach = resize->mode == RESIZE_NEAREST ? 0.5 : kernel_reach(resize, d, &stretch);
  struct resample_axis *axis;
  if (reach > 2.0 * (double)in + 2.0)
    return node_error(node, err, ERR_INVALID, "a scale of %g reaches beyond dimension %d of %lld",
                      resize->scale[d], d, (long long)in);
  axis = resample_axis_new(resample, in, out, (int64_t)(2.0 * reach), is_cropped);
  if (!axis)
    return node_error(node, err, ERR_NO_MEMORY, "no memory for the weights of %lld elements", (long long)out);
  for (int64_t o = 0; o < out; o++) {
    int64_t *from = axis->from + o * axis->taps;
    float *weight = axis->weight + o * axis->taps;
    double x = coordinate_of(resize, d, o);
    if (is_cropped)
      axis->is_outside[o] = !(x >= 0.0 && x <= (double)in - 1.0);
    x = fmin(fmax(x, -2.0 * (double)in), 3.0 * (double)in);
    if (resize->mode == RESIZE_NEAREST) {
      from[0] = index_within((int64_t)rounded_by(resize->rounding, x), in);
      weight[0] = 1.0f;
    } else {
      fill_taps(resize, d, x, stretch, &(struct taps){from, weight, axis->taps});
    }
    for (int64_t t = 0; t < axis->taps && is_cropped && axis->is_outside[o]; t++)
      weight[t] = 0.0f;
  }
  return ERR_OK;
}

int resize_tables(const struct resize *resize, const struct node *node, struct resample *resample,
                  struct err *err) {
  bool is_cropped = resize->coordinates == COORDINATES_TF_CROP_AND_RESIZE;
  *resample = (struct resample){.fill = resize->fill};
  for (int d = 0; d < resize->in.rank; d++) {
    bool is_whole = !is_cropped || (resize->begin[d] == 0.0 && resize->end[d] == 1.0);
    if (resize->scale[d] == 1.0 && resize->in.dim[d] == resize->out.dim[d] && is_whole)
      resample_keep(resample, resize->in.dim[d]);
    else if (fill_axis(resize, d, node, resample, err))
      return err->code;
  }
  if (resample->rank == 0)
    resample_keep(resample, 1);
  return ERR_OK;
}

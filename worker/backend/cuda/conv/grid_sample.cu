/* Samples at the places of a grid. A thread has a place and makes the samples of all channels there: its
   weights, in f64 as the reference kernel has them, are made once; neighbouring threads have neighbouring
   places, and write neighbouring elements of a channel.

   The gradient of the input adds up what the samples have for each element. Which elements those are is only
   known from the grid, so the taps are sorted by element first: no atomics on reals, the same bits each time.
 */
#include "worker/backend/cuda/conv/grid_sample.h"

#include <math.h>

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/moves/copy.h"

enum { AXIS_TAPS_MAX = 4 };

/* One coordinate's elements: where (-1: outside), their weights, and the derivatives of these by the grid. */
struct axis_taps {
  int n;
  int64_t at[AXIS_TAPS_MAX];
  double weight[AXIS_TAPS_MAX], slope[AXIS_TAPS_MAX];
};

/* Mirrors at low and high until x is between them; *sign is turned with each. */
static __device__ double place_reflect(double x, double low, double high, double *sign) {
  double span = high - low, folds, rest;
  if (span == 0.0)
    return low;
  if (x < low) {
    x = 2.0 * low - x;
    *sign = -*sign;
  }
  folds = floor((x - low) / span);
  rest = x - low - folds * span;
  if (fmod(folds, 2.0) == 0.0)
    return low + rest;
  *sign = -*sign;
  return high - rest;
}

/* Moves a coordinate into [0, size-1]; *slope is multiplied by the derivative. */
static __device__ double place_pad(const struct cuda_grid_sampler *s, double x, int64_t size, double *slope) {
  double low = s->is_aligned ? 0.0 : -0.5;
  if (s->padding == CUDA_GRID_REFLECTION)
    x = place_reflect(x, low, (double)(size - 1) - low, slope);
  if (x > 0.0 && x < (double)(size - 1))
    return x;
  *slope = 0.0;
  return x > 0.0 ? (double)(size - 1) : 0.0;
}

/* Keys's kernel with a = -0.75 and its derivative, at distance `t` + 1, t, 1 - t and 2 - t. */
static __device__ void cubic_taps(struct axis_taps *taps, double t, double slope) {
  const double a = -0.75;
  for (int side = 0; side < 2; side++) {
    double f = side ? 2.0 - t : t + 1.0, c = side ? 1.0 - t : t, sign = side ? -slope : slope;
    int outer = side ? 3 : 0, inner = side ? 2 : 1;
    taps->weight[outer] = ((a * f - 5.0 * a) * f + 8.0 * a) * f - 4.0 * a;
    taps->slope[outer] = sign * ((3.0 * a * f - 10.0 * a) * f + 8.0 * a);
    taps->weight[inner] = ((a + 2.0) * c - (a + 3.0)) * c * c + 1.0;
    taps->slope[inner] = sign * (3.0 * (a + 2.0) * c - 2.0 * (a + 3.0)) * c;
  }
}

static __device__ void axis_taps_of(const struct cuda_grid_sampler *s, double coordinate, int64_t size,
                                    struct axis_taps *taps) {
  double slope = (double)(s->is_aligned ? size - 1 : size) / 2.0, first, unused = 1.0;
  double x = (coordinate + 1.0) * slope - (s->is_aligned ? 0.0 : 0.5);
  taps->n = 0;
  if (!isfinite(x))
    return;
  if (s->padding != CUDA_GRID_ZEROS && s->mode != CUDA_GRID_CUBIC)
    x = place_pad(s, x, size, &slope);
  first = s->mode == CUDA_GRID_NEAREST ? nearbyint(x) : floor(x);
  if (s->mode == CUDA_GRID_NEAREST) {
    taps->n = 1;
    taps->weight[0] = 1.0;
    taps->slope[0] = 0.0;
  } else if (s->mode == CUDA_GRID_LINEAR) {
    taps->n = 2;
    taps->weight[0] = 1.0 - (x - first);
    taps->weight[1] = x - first;
    taps->slope[0] = -slope;
    taps->slope[1] = slope;
  } else {
    taps->n = 4;
    cubic_taps(taps, x - first, slope);
    first -= 1.0;
  }
  for (int t = 0; t < taps->n; t++) {
    double at = first + t;
    if (s->padding != CUDA_GRID_ZEROS && s->mode == CUDA_GRID_CUBIC)
      at = place_pad(s, at, size, &unused);
    taps->at[t] = at >= 0.0 && at <= (double)(size - 1) ? (int64_t)at : -1;
  }
}

/* The taps of place o of all, along each dimension; along those that are not there, one. */
static __device__ void place_taps(const struct cuda_grid_sample *g, int64_t o, struct axis_taps *axis) {
  const struct cuda_grid_sampler *s = &g->sampler;
  for (int d = 0; d < CUDA_GRID_DIMS; d++) {
    if (d < s->dims) {
      axis_taps_of(s, g->grid[o * s->dims + s->dims - 1 - d], s->in[d], &axis[d]);
    } else {
      axis[d].n = 1;
      axis[d].at[0] = 0;
      axis[d].weight[0] = 1.0;
      axis[d].slope[0] = 0.0;
    }
  }
}

/* One tap of a place. */
struct tap {
  int64_t at; /* in its channel; -1: outside */
  double weight, slope[CUDA_GRID_DIMS];
};

static __device__ int64_t taps_count(const struct axis_taps *axis) {
  return (int64_t)axis[0].n * axis[1].n * axis[2].n;
}

static __device__ struct tap tap_of(const struct cuda_grid_sampler *s, const struct axis_taps *axis,
                                    int64_t i) {
  int t[CUDA_GRID_DIMS];
  struct tap tap;
  tap.at = 0;
  tap.weight = 1.0;
  for (int d = 0; d < CUDA_GRID_DIMS; d++) {
    t[d] = (int)(i % axis[d].n);
    i /= axis[d].n;
    tap.weight *= axis[d].weight[t[d]];
    tap.at = tap.at < 0 || axis[d].at[t[d]] < 0 ? -1 : tap.at * s->in[d] + axis[d].at[t[d]];
  }
  for (int e = 0; e < CUDA_GRID_DIMS; e++) {
    tap.slope[e] = 1.0;
    for (int d = 0; d < CUDA_GRID_DIMS; d++)
      tap.slope[e] *= e == d ? axis[d].slope[t[d]] : axis[d].weight[t[d]];
  }
  return tap;
}

static __global__ void sample_kernel(struct cuda_grid_sample g) {
  const struct cuda_grid_sampler *s = &g.sampler;
  for (int64_t o = CUDA_FIRST; o < s->n * s->out_elems; o += CUDA_STRIDE) {
    struct axis_taps axis[CUDA_GRID_DIMS];
    int64_t n = o / s->out_elems, taps;
    place_taps(&g, o, axis);
    taps = taps_count(axis);
    for (int64_t c = 0; c < s->channels; c++) {
      int64_t channel = n * s->channels + c;
      double sum = 0.0;
      for (int64_t i = 0; i < taps; i++) {
        struct tap tap = tap_of(s, axis, i);
        if (tap.at >= 0)
          sum += tap.weight * cuda_load(&g.x, channel * s->in_elems + tap.at);
      }
      cuda_store(&g.out, channel * s->out_elems + o - n * s->out_elems, (float)sum);
    }
  }
}

/* How each sample changes with its place. */
static __global__ void sample_grid_kernel(struct cuda_grid_sample g) {
  const struct cuda_grid_sampler *s = &g.sampler;
  for (int64_t o = CUDA_FIRST; o < s->n * s->out_elems; o += CUDA_STRIDE) {
    struct axis_taps axis[CUDA_GRID_DIMS];
    double sum[CUDA_GRID_DIMS] = {0.0};
    int64_t n = o / s->out_elems, taps;
    place_taps(&g, o, axis);
    taps = taps_count(axis);
    for (int64_t i = 0; i < taps; i++) {
      struct tap tap = tap_of(s, axis, i);
      double product = 0.0;
      for (int64_t channel = n * s->channels; tap.at >= 0 && channel < (n + 1) * s->channels; channel++)
        product += (double)cuda_load(&g.x, channel * s->in_elems + tap.at) *
                   cuda_load(&g.dy, channel * s->out_elems + o - n * s->out_elems);
      for (int d = 0; d < CUDA_GRID_DIMS; d++)
        sum[d] += tap.slope[d] * product;
    }
    for (int d = 0; d < s->dims; d++)
      cuda_store(&g.out, o * s->dims + s->dims - 1 - d, (float)sum[d]);
  }
}

/* Keys: which element of the batch's channels each tap is of; of those outside one behind the last. */
static __global__ void tap_keys_kernel(struct cuda_grid_sample g, uint32_t *keys, uint32_t *rows) {
  const struct cuda_grid_sampler *s = &g.sampler;
  for (int64_t o = CUDA_FIRST; o < s->n * s->out_elems; o += CUDA_STRIDE) {
    struct axis_taps axis[CUDA_GRID_DIMS];
    int64_t n = o / s->out_elems, taps;
    place_taps(&g, o, axis);
    taps = taps_count(axis);
    for (int64_t i = 0, at = o * g.taps; i < g.taps; i++, at++) {
      struct tap tap = {-1, 0.0, {0.0}};
      if (i < taps)
        tap = tap_of(s, axis, i);
      keys[at] = (uint32_t)(tap.at < 0 ? s->n * s->in_elems : n * s->in_elems + tap.at);
      rows[at] = (uint32_t)at;
      g.weights[at] = (float)tap.weight;
    }
  }
}

/* A thread for each channel of each element that has taps. */
static __global__ void sample_input_kernel(struct cuda_grid_sample g, const uint32_t *keys,
                                           const uint32_t *rows) {
  const struct cuda_grid_sampler *s = &g.sampler;
  int64_t all = s->n * s->out_elems * g.taps;
  for (int64_t i = CUDA_FIRST; i < all * s->channels; i += CUDA_STRIDE) {
    int64_t c = i / all, at = i - c * all;
    uint32_t key = keys[at];
    float sum = 0.0f;
    if (key >= s->n * s->in_elems || (at > 0 && keys[at - 1] == key))
      continue;
    int64_t n = key / s->in_elems, channel = n * s->channels + c;
    for (; at < all && keys[at] == key; at++) {
      int64_t o = rows[at] / g.taps - n * s->out_elems;
      sum += g.weights[rows[at]] * cuda_load(&g.dy, channel * s->out_elems + o);
    }
    cuda_store(&g.out, channel * s->in_elems + key - n * s->in_elems, sum);
  }
}

void cuda_grid_sample_launch(const struct cuda_grid_sample *g, cudaStream_t stream) {
  CUDA_LAUNCH(sample_kernel, cuda_blocks(g->sampler.n * g->sampler.out_elems), CUDA_THREADS, stream, *g);
}

void cuda_grid_sample_grid_launch(const struct cuda_grid_sample *g, cudaStream_t stream) {
  CUDA_LAUNCH(sample_grid_kernel, cuda_blocks(g->sampler.n * g->sampler.out_elems), CUDA_THREADS, stream, *g);
}

void cuda_grid_sample_input_launch(const struct cuda_grid_sample *g, const struct cuda_sorting *sorting,
                                   cudaStream_t stream) {
  int64_t places = g->sampler.n * g->sampler.out_elems;
  uint32_t greatest = (uint32_t)(g->sampler.n * g->sampler.in_elems);
  int from = cuda_sort_begin(greatest);
  cuda_fill_launch(g->out.data, g->out.elems, g->out.type == CUDA_F32 ? 4 : 2, 0, stream);
  CUDA_LAUNCH(tap_keys_kernel, cuda_blocks(places), CUDA_THREADS, stream, *g, sorting->keys[from],
              sorting->rows[from]);
  cuda_sort_launch(sorting, places * g->taps, greatest, stream);
  CUDA_LAUNCH(sample_input_kernel, cuda_blocks(places * g->taps * g->sampler.channels), CUDA_THREADS, stream,
              *g, (const uint32_t *)sorting->keys[0], (const uint32_t *)sorting->rows[0]);
}

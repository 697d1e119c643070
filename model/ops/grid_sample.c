/* GridSample (ONNX 16..20): x f32[n,c,spatial...] sampled at the places of grid f32[n,out...,r] (r
   coordinates, the innermost first; -1 and 1 are the ends of x) -> f32[n,c,out...]. What lies outside is
   padded as PyTorch's grid_sample does it: taps of cubic mode one by one, else the coordinate. */
#include "model/ops/grid_sample.h"

#include <math.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

enum { AXIS_TAPS_MAX = 4, TAPS_MAX = 64 };

/* One coordinate's elements: where (-1: outside), their weights, and the derivatives of these by the grid. */
struct axis_taps {
  int n;
  int64_t at[AXIS_TAPS_MAX];
  double weight[AXIS_TAPS_MAX], slope[AXIS_TAPS_MAX];
};

/* The elements of a channel whose weighted sum is a sample. */
struct taps {
  int n;
  int64_t at[TAPS_MAX];
  double weight[TAPS_MAX], slope[GRID_DIMS_MAX][TAPS_MAX]; /* by the grid's coordinate for dimension d */
};

/* The attribute's place in `names`, which ends with NULL. */
static int read_name(const struct node *node, const char *attr, const char *const *names, int *index,
                     struct err *err) {
  const char *name = node_attr_string(node, attr, names[0]);
  for (*index = 0; names[*index]; ++*index)
    if (strcmp(names[*index], name) == 0)
      return ERR_OK;
  return node_error(node, err, ERR_INVALID, "%s '%s' is unknown", attr, name);
}

int grid_sampler_init(struct grid_sampler *s, const struct node *node, const struct shape *x,
                      const struct shape *grid, struct err *err) {
  static const char *const modes[] = {/* those of opset 20, then of 16 */
                                      "linear", "nearest", "cubic", "bilinear", "bicubic", NULL};
  static const char *const paddings[] = {"zeros", "border", "reflection", NULL};
  char x_text[128], grid_text[128];
  int mode, padding;
  if (read_name(node, "mode", modes, &mode, err) || read_name(node, "padding_mode", paddings, &padding, err))
    return err->code;
  *s = (struct grid_sampler){.mode = mode == 3   ? GRID_LINEAR
                                     : mode == 4 ? GRID_CUBIC
                                                 : (enum grid_mode)mode,
                             .padding = (enum grid_padding)padding,
                             .is_aligned = node_attr_int(node, "align_corners", 0) != 0,
                             .dims = x->rank - 2};
  if (x->rank < 3 || grid->rank != x->rank || grid->dim[grid->rank - 1] != s->dims ||
      grid->dim[0] != x->dim[0] || shape_elems(x) <= 0)
    return node_error(node, err, ERR_INVALID, "a grid of shape %s does not fit an input of shape %s",
                      shape_text(grid, grid_text, sizeof grid_text), shape_text(x, x_text, sizeof x_text));
  if (s->dims > GRID_DIMS_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "more than %d spatial dimensions are not supported",
                      GRID_DIMS_MAX);
  s->n = x->dim[0];
  s->channels = x->dim[1];
  s->in_elems = s->out_elems = 1;
  for (int d = 0; d < s->dims; d++) {
    s->in[d] = x->dim[d + 2];
    s->in_elems *= s->in[d];
    s->out_elems *= grid->dim[d + 1];
  }
  return ERR_OK;
}

static int grid_sample_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, grid = node_input(graph, node, 1)->shape;
  struct grid_sampler s;
  if (infer_check_f32(graph, node, err) || grid_sampler_init(&s, node, &x, &grid, err))
    return err->code;
  memcpy(&x.dim[2], &grid.dim[1], (size_t)s.dims * sizeof *x.dim);
  return infer_f32(graph, node, 0, &x, err);
}

static int grid_sample_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->inputs[1]};
  (void)err;
  if (autodiff_wants(ad, node, 0))
    autodiff_add(
        ad, node, 0,
        backward_node(graph, "GridSampleGradInput", (struct value_list){inputs, 3}, node_attrs(node)));
  if (autodiff_wants(ad, node, 1))
    autodiff_add(
        ad, node, 1,
        backward_node(graph, "GridSampleGradGrid", (struct value_list){inputs, 3}, node_attrs(node)));
  return ERR_OK;
}

/* Mirrors at low and high until x is between them; *sign is turned with each. */
static double coordinate_reflect(double x, double low, double high, double *sign) {
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
static double coordinate_pad(const struct grid_sampler *s, double x, int64_t size, double *slope) {
  double low = s->is_aligned ? 0.0 : -0.5;
  if (s->padding == GRID_REFLECTION)
    x = coordinate_reflect(x, low, (double)(size - 1) - low, slope);
  if (x > 0.0 && x < (double)(size - 1))
    return x;
  *slope = 0.0;
  return x > 0.0 ? (double)(size - 1) : 0.0;
}

/* Keys's kernel with a = -0.75 and its derivative, at distance `t` + 1, t, 1 - t and 2 - t. */
static void cubic_taps(struct axis_taps *taps, double t, double slope) {
  const double a = -0.75, far[] = {t + 1.0, 2.0 - t}, near[] = {t, 1.0 - t};
  for (int side = 0; side < 2; side++) {
    double f = far[side], c = near[side], sign = side ? -slope : slope;
    int outer = side ? 3 : 0, inner = side ? 2 : 1;
    taps->weight[outer] = ((a * f - 5.0 * a) * f + 8.0 * a) * f - 4.0 * a;
    taps->slope[outer] = sign * ((3.0 * a * f - 10.0 * a) * f + 8.0 * a);
    taps->weight[inner] = ((a + 2.0) * c - (a + 3.0)) * c * c + 1.0;
    taps->slope[inner] = sign * (3.0 * (a + 2.0) * c - 2.0 * (a + 3.0)) * c;
  }
}

static struct axis_taps axis_taps_of(const struct grid_sampler *s, double coordinate, int64_t size) {
  struct axis_taps taps = {0};
  double slope = (double)(s->is_aligned ? size - 1 : size) / 2.0, first, unused = 1.0;
  double x = (coordinate + 1.0) * slope - (s->is_aligned ? 0.0 : 0.5);
  if (!isfinite(x))
    return taps;
  if (s->padding != GRID_ZEROS && s->mode != GRID_CUBIC)
    x = coordinate_pad(s, x, size, &slope);
  first = s->mode == GRID_NEAREST ? nearbyint(x) : floor(x);
  if (s->mode == GRID_NEAREST) {
    taps = (struct axis_taps){.n = 1, .weight = {1.0}};
  } else if (s->mode == GRID_LINEAR) {
    taps = (struct axis_taps){.n = 2, .weight = {1.0 - (x - first), x - first}, .slope = {-slope, slope}};
  } else {
    taps.n = 4;
    cubic_taps(&taps, x - first, slope);
    first -= 1.0;
  }
  for (int t = 0; t < taps.n; t++) {
    double at = first + t;
    if (s->padding != GRID_ZEROS && s->mode == GRID_CUBIC)
      at = coordinate_pad(s, at, size, &unused);
    taps.at[t] = at >= 0.0 && at <= (double)(size - 1) ? (int64_t)at : -1;
  }
  return taps;
}

/* The taps of one place of the grid: products over the dimensions. */
static void taps_of(const struct grid_sampler *s, const float *place, struct taps *taps) {
  struct axis_taps axis[GRID_DIMS_MAX] = {0};
  int total = 1;
  for (int d = 0; d < s->dims; d++) {
    axis[d] = axis_taps_of(s, place[s->dims - 1 - d], s->in[d]);
    total *= axis[d].n;
  }
  taps->n = 0;
  for (int i = 0; i < total; i++) {
    double weight = 1.0, slope[GRID_DIMS_MAX] = {1.0, 1.0, 1.0};
    int64_t at = 0;
    for (int d = 0, rest = i; d < s->dims && at >= 0; rest /= axis[d].n, d++) {
      int t = rest % axis[d].n;
      weight *= axis[d].weight[t];
      for (int e = 0; e < s->dims; e++)
        slope[e] *= e == d ? axis[d].slope[t] : axis[d].weight[t];
      at = axis[d].at[t] < 0 ? -1 : at * s->in[d] + axis[d].at[t];
    }
    if (at < 0)
      continue;
    taps->at[taps->n] = at;
    taps->weight[taps->n] = weight;
    for (int d = 0; d < s->dims; d++)
      taps->slope[d][taps->n] = slope[d];
    taps->n++;
  }
}

static int grid_sample_ref(const struct op_call *call, struct err *err) {
  const struct tensor *grid = &call->in[1];
  const float *x = call->in[0].data, *place = grid->data;
  float *y = call->out[0].data;
  struct grid_sampler s;
  struct taps taps;
  if (grid_sampler_init(&s, call->node, &call->in[0].shape, &grid->shape, err))
    return err->code;
  for (int64_t n = 0; n < s.n; n++, x += s.channels * s.in_elems, y += s.channels * s.out_elems)
    for (int64_t o = 0; o < s.out_elems; o++, place += s.dims) {
      taps_of(&s, place, &taps);
      for (int64_t c = 0; c < s.channels; c++) {
        double sum = 0.0;
        for (int t = 0; t < taps.n; t++)
          sum += taps.weight[t] * x[c * s.in_elems + taps.at[t]];
        y[c * s.out_elems + o] = (float)sum;
      }
    }
  return ERR_OK;
}

/* With 5 elements the grid's values, which lie apart, stay away from the kinks between elements. */
static const struct op_case grid_sample_cases[] = {
    {.inputs = "f32[1,2,4,3] f32{-1.3..1.3}[1,3,4,2]",
     .attrs = "mode=bicubic padding_mode=border",
     .is_not_smooth = true},
    {.inputs = "f32[n,c,5,5] f32{apart}[n,h,w,2]",
     .attrs = "mode=m padding_mode=p align_corners=a",
     .draw = "n=1..2 c=1..3 h=1..3 w=1..3 m=bilinear|bicubic p=zeros|border|reflection a=0|1"},
    {.inputs = "f32[n,c,5,5] f32{apart}[n,h,w,2]",
     .attrs = "mode=nearest padding_mode=p",
     .draw = "n=1..2 c=1..3 h=1..3 w=1..3 p=zeros|border|reflection"},
    {.inputs = "f32[n,c,5] f32{apart}[n,h,1]",
     .attrs = "mode=m padding_mode=p align_corners=a",
     .draw = "n=1..2 c=1..3 h=1..9 m=linear|cubic p=zeros|border|reflection a=0|1",
     .opset = 20},
    {.inputs = "f32[1,c,5,5,5] f32{apart}[1,h,2,1,3]",
     .attrs = "mode=m padding_mode=p align_corners=a",
     .draw = "c=1..2 h=1..2 m=linear|cubic p=zeros|border|reflection a=0|1",
     .opset = 20},
    {0},
};

static const struct op_def grad_input, grad_grid;
static const struct op_def *const grid_sample_gradients[] = {&grad_input, &grad_grid, NULL};

const struct op_def op_GridSample = {
    .name = "GridSample",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 16,
    .infer = grid_sample_infer,
    .backward = grid_sample_backward,
    .ref = grid_sample_ref,
    .cases = grid_sample_cases,
    .gradients = grid_sample_gradients,
};

static int grad_input_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_f32(graph, node, 0, &node_input(graph, node, 1)->shape, err);
}

/* dy, x, grid -> dx: each sample's gradient goes to its taps. */
static int grad_input_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[1], *grid = &call->in[2];
  const float *dy = call->in[0].data, *place = grid->data;
  float *dx = call->out[0].data;
  struct grid_sampler s;
  struct taps taps;
  if (grid_sampler_init(&s, call->node, &x->shape, &grid->shape, err))
    return err->code;
  memset(dx, 0, (size_t)shape_elems(&x->shape) * sizeof *dx);
  for (int64_t n = 0; n < s.n; n++, dx += s.channels * s.in_elems, dy += s.channels * s.out_elems)
    for (int64_t o = 0; o < s.out_elems; o++, place += s.dims) {
      taps_of(&s, place, &taps);
      for (int64_t c = 0; c < s.channels; c++)
        for (int t = 0; t < taps.n; t++)
          dx[c * s.in_elems + taps.at[t]] += (float)(taps.weight[t] * dy[c * s.out_elems + o]);
    }
  return ERR_OK;
}

static const struct op_def grad_input = {
    .name = "GridSampleGradInput",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = grad_input_infer,
    .ref = grad_input_ref,
};

static int grad_grid_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_f32(graph, node, 0, &node_input(graph, node, 2)->shape, err);
}

/* dy, x, grid -> dgrid: how each sample changes with its place. */
static int grad_grid_ref(const struct op_call *call, struct err *err) {
  const struct tensor *grid = &call->in[2];
  const float *dy = call->in[0].data, *x = call->in[1].data, *place = grid->data;
  float *dplace = call->out[0].data;
  struct grid_sampler s;
  struct taps taps;
  if (grid_sampler_init(&s, call->node, &call->in[1].shape, &grid->shape, err))
    return err->code;
  for (int64_t n = 0; n < s.n; n++, x += s.channels * s.in_elems, dy += s.channels * s.out_elems)
    for (int64_t o = 0; o < s.out_elems; o++, place += s.dims, dplace += s.dims) {
      taps_of(&s, place, &taps);
      for (int d = 0; d < s.dims; d++) {
        double sum = 0.0;
        for (int64_t c = 0; c < s.channels; c++)
          for (int t = 0; t < taps.n; t++)
            sum += taps.slope[d][t] * x[c * s.in_elems + taps.at[t]] * dy[c * s.out_elems + o];
        dplace[s.dims - 1 - d] = (float)sum;
      }
    }
  return ERR_OK;
}

static const struct op_def grad_grid = {
    .name = "GridSampleGradGrid",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = grad_grid_infer,
    .ref = grad_grid_ref,
};

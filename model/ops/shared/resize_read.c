/* Resize's attributes and inputs. */
#include <string.h>

#include "model/ops/shared/infer.h"
#include "model/ops/shared/resize.h"

/* No coordinate of a tensor comes near. */
static const double length_max = 1e12;

static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
static const char *const coordinates[] = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL};
static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};

/* An attribute that holds one of a list of names. */
struct choice {
  const char *attr, *otherwise;
  const char *const *names;
};

/* *at: its place in the list. */
static int read_choice(const struct node *node, struct choice choice, int *at, struct err *err) {
  const char *text = node_attr_string(node, choice.attr, choice.otherwise);
  for (*at = 0; choice.names[*at]; ++*at)
    if (strcmp(choice.names[*at], text) == 0)
      return ERR_OK;
  return node_error(node, err, ERR_UNSUPPORTED, "%s '%.40s' is not known", choice.attr, text);
}

bool resize_is_old(const struct graph *graph, const struct node *node) {
  return strcmp(node->op->name, "Upsample") == 0 ||
         (strcmp(node->op->name, "Resize") == 0 && graph->opset < 11);
}

/* Where a node has n floats: an input, or an attribute. */
struct floats_source {
  int input;
  const char *attr;
  int n;
};

/* They must be known; *values is NULL when there are none. */
static int read_floats(const struct graph *graph, const struct node *node, struct floats_source source,
                       const float **values, struct err *err) {
  const struct value *value = node_input(graph, node, source.input);
  const struct attr *attr = node_attr(node, source.attr);
  int n = source.n;
  *values = NULL;
  if (value && shape_elems(&value->shape) != 0) {
    if (infer_check_known(graph, node, source.input, err))
      return err->code;
    if (value->dtype != DTYPE_F32 || value->shape.rank != 1 || value->shape.dim[0] != n)
      return node_error(node, err, ERR_INVALID, "input %d ('%s') must be a vector of %d f32", source.input,
                        value->name, n);
    *values = value->data;
  } else if (attr) {
    if (attr->type != ATTR_FLOATS || attr->n != n)
      return node_error(node, err, ERR_INVALID, "attribute '%s' must be a list of %d floats", source.attr, n);
    *values = attr->floats;
  }
  for (int i = 0; i < n && *values; i++)
    if (!(fabs((double)(*values)[i]) < length_max))
      return node_error(node, err, ERR_INVALID, "%s of %g make no sense", source.attr, (double)(*values)[i]);
  return ERR_OK;
}

static int set_length(struct resize *resize, const struct node *node, int d, double length, struct err *err) {
  if (!(length >= 0.0 && length < length_max) || (resize->in.dim[d] == 0 && length >= 1.0) ||
      !(resize->scale[d] > 0.0))
    return node_error(node, err, ERR_INVALID, "dimension %d of %lld cannot be resized to %g", d,
                      (long long)resize->in.dim[d], length);
  resize->length[d] = length;
  resize->out.dim[d] = (int64_t)length;
  return ERR_OK;
}

/* The axes that are resized, in the order of their scales or sizes. */
struct resized {
  int n, axis[RANK_MAX];
};

static int read_scales(struct resize *resize, const struct node *node, const float *scales,
                       const struct resized *resized, struct err *err) {
  bool is_cropped = resize->coordinates == COORDINATES_TF_CROP_AND_RESIZE;
  for (int i = 0; i < resized->n; i++) {
    int d = resized->axis[i];
    double part = is_cropped ? resize->end[d] - resize->begin[d] : 1.0;
    resize->scale[d] = scales[i];
    if (set_length(resize, node, d, (double)resize->in.dim[d] * part * scales[i], err))
      return err->code;
  }
  return ERR_OK;
}

static int read_sizes(struct resize *resize, const struct node *node, const int64_t *sizes,
                      const struct resized *resized, struct err *err) {
  const int *axes = resized->axis;
  int n = resized->n;
  const char *policy = node_attr_string(node, "keep_aspect_ratio_policy", "stretch");
  bool is_not_larger = strcmp(policy, "not_larger") == 0, is_not_smaller = strcmp(policy, "not_smaller") == 0;
  double common = is_not_larger ? INFINITY : 0.0;
  if (!is_not_larger && !is_not_smaller && strcmp(policy, "stretch") != 0)
    return node_error(node, err, ERR_UNSUPPORTED, "keep_aspect_ratio_policy '%.40s' is not known", policy);
  for (int i = 0; i < n; i++) {
    double scale = (double)sizes[i] / (double)resize->in.dim[axes[i]];
    common = is_not_larger ? fmin(common, scale) : fmax(common, scale);
    resize->scale[axes[i]] = scale;
    if (set_length(resize, node, axes[i], (double)sizes[i], err))
      return err->code;
  }
  for (int i = 0; i < n && (is_not_larger || is_not_smaller); i++) {
    double length = common * (double)resize->in.dim[axes[i]];
    resize->scale[axes[i]] = common;
    if (set_length(resize, node, axes[i], floor(length + 0.5), err))
      return err->code;
  }
  return ERR_OK;
}

/* The region of interest: where each axis begins, then where it ends. */
static int read_region(struct resize *resize, const struct graph *graph, const struct node *node,
                       const struct resized *resized, struct err *err) {
  const int *axes = resized->axis;
  int n = resized->n;
  const float *roi;
  if (resize->coordinates != COORDINATES_TF_CROP_AND_RESIZE)
    return ERR_OK;
  if (read_floats(graph, node, (struct floats_source){1, "roi", 2 * n}, &roi, err))
    return err->code;
  if (!roi)
    return node_error(node, err, ERR_INVALID, "tf_crop_and_resize has no region (input 1)");
  for (int i = 0; i < n; i++) {
    resize->begin[axes[i]] = roi[i];
    resize->end[axes[i]] = roi[n + i];
  }
  return ERR_OK;
}

/* The axes that the attribute names, else all. */
static int read_axes(const struct graph *graph, const struct node *node, int rank, struct resized *resized,
                     struct err *err) {
  const struct ints_source source = {INFER_NO_INPUT, "axes"};
  struct axis_set set = {.rank = rank};
  int64_t given[RANK_MAX] = {0};
  if (infer_axes(graph, node, source, &set, err) ||
      infer_few_ints(graph, node, source, (struct ints_room){given, RANK_MAX, &resized->n}, err))
    return err->code;
  for (int i = 0; i < resized->n; i++)
    resized->axis[i] = (int)(given[i] < 0 ? given[i] + rank : given[i]);
  if (resized->n > 0)
    return ERR_OK;
  for (; resized->n < rank; resized->n++)
    resized->axis[resized->n] = resized->n;
  return ERR_OK;
}

static int read_lengths(struct resize *resize, const struct graph *graph, const struct node *node,
                        struct err *err) {
  bool is_old = resize_is_old(graph, node);
  int64_t sizes[RANK_MAX] = {0};
  struct resized resized;
  const float *scales;
  int n, n_sizes = 0;
  if (read_axes(graph, node, resize->in.rank, &resized, err))
    return err->code;
  n = resized.n;
  if (read_region(resize, graph, node, &resized, err) ||
      read_floats(graph, node, (struct floats_source){is_old ? 1 : 2, "scales", n}, &scales, err) ||
      (!is_old && infer_few_ints(graph, node, (struct ints_source){3, NULL},
                                 (struct ints_room){sizes, RANK_MAX, &n_sizes}, err)))
    return err->code;
  if ((scales != NULL) == (n_sizes > 0) || (n_sizes > 0 && n_sizes != n))
    return node_error(node, err, ERR_INVALID, "needs either %d scales or %d sizes", n, n);
  return scales ? read_scales(resize, node, scales, &resized, err)
                : read_sizes(resize, node, sizes, &resized, err);
}

int resize_read(const struct graph *graph, const struct node *node, const struct shape *in,
                struct resize *resize, struct err *err) {
  bool is_old = resize_is_old(graph, node);
  int mode, coordinate, rounding;
  *resize = (struct resize){.in = *in, .out = *in};
  if (read_choice(node, (struct choice){"mode", "nearest", modes}, &mode, err) ||
      read_choice(node,
                  (struct choice){"coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel",
                                  coordinates},
                  &coordinate, err) ||
      read_choice(node, (struct choice){"nearest_mode", is_old ? "floor" : "round_prefer_floor", roundings},
                  &rounding, err))
    return err->code;
  resize->mode = (enum resize_mode)mode;
  resize->coordinates = (enum resize_coordinates)coordinate;
  resize->rounding = (enum resize_rounding)rounding;
  resize->is_antialiased = node_attr_int(node, "antialias", 0) != 0 && resize->mode != RESIZE_NEAREST;
  resize->excludes_outside = node_attr_int(node, "exclude_outside", 0) != 0;
  resize->cubic_a = node_attr_float(node, "cubic_coeff_a", -0.75f);
  resize->fill = node_attr_float(node, "extrapolation_value", 0.0f);
  for (int d = 0; d < in->rank; d++) {
    resize->scale[d] = resize->end[d] = 1.0;
    resize->length[d] = (double)in->dim[d];
  }
  return read_lengths(resize, graph, node, err);
}

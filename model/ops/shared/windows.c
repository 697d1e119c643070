/* The windows that convolutions and pools slide over. */
#include "model/ops/shared/windows.h"

#include <string.h>

/* Sizes in attributes are bounded, so that their sums and products fit. */
static const int64_t size_max = INT64_C(1) << 31;

/* An attribute of n integers in [least, size_max], `otherwise` each where it is absent. */
struct sizes {
  const char *name;
  int n;
  int64_t least, otherwise;
};

static int read_sizes(const struct node *node, struct sizes sizes, int64_t *out, struct err *err) {
  const struct attr *attr = node_attr(node, sizes.name);
  if (attr && (attr->type != ATTR_INTS || attr->n != sizes.n))
    return node_error(node, err, ERR_INVALID, "attribute '%s' must be a list of %d integers", sizes.name,
                      sizes.n);
  for (int i = 0; i < sizes.n; i++) {
    out[i] = attr ? attr->ints[i] : sizes.otherwise;
    if (out[i] < sizes.least || out[i] > size_max)
      return node_error(node, err, ERR_INVALID, "attribute '%s' holds %lld", sizes.name, (long long)out[i]);
  }
  return ERR_OK;
}

static int read_attributes(struct windows *w, const struct node *node, const int64_t *kernel,
                           struct err *err) {
  int first = WINDOWS_DIMS - w->dims;
  int64_t pads[2 * WINDOWS_DIMS];
  if (!kernel && !node_attr(node, "kernel_shape"))
    return node_error(node, err, ERR_INVALID, "attribute 'kernel_shape' is missing");
  if (read_sizes(node, (struct sizes){"kernel_shape", w->dims, 1, 1}, w->kernel + first, err) ||
      read_sizes(node, (struct sizes){"strides", w->dims, 1, 1}, w->stride + first, err) ||
      read_sizes(node, (struct sizes){"dilations", w->dims, 1, 1}, w->dilation + first, err) ||
      read_sizes(node, (struct sizes){"pads", 2 * w->dims, kernel ? -size_max : 0, 0}, pads, err))
    return err->code;
  for (int i = 0; i < w->dims; i++) {
    w->pad_begin[first + i] = pads[i];
    w->pad_end[first + i] = pads[w->dims + i];
    if (!kernel)
      continue;
    if (kernel[i] < 1 || kernel[i] > size_max ||
        (node_attr(node, "kernel_shape") && w->kernel[first + i] != kernel[i]))
      return node_error(node, err, ERR_INVALID,
                        "the weights have a kernel of %lld along spatial dimension %d", (long long)kernel[i],
                        i);
    w->kernel[first + i] = kernel[i];
  }
  w->is_ceil = node_attr_int(node, "ceil_mode", 0) != 0;
  return ERR_OK;
}

static int64_t kernel_extent(const struct windows *w, int d) {
  return (w->kernel[d] - 1) * w->dilation[d] + 1;
}

/* Padding such that there are ceil(in / stride) windows; the odd one goes to the end for SAME_UPPER. */
static void pad_same(struct windows *w, int d, bool is_upper) {
  int64_t out = (w->in[d] + w->stride[d] - 1) / w->stride[d];
  int64_t total = (out - 1) * w->stride[d] + kernel_extent(w, d) - w->in[d];
  if (total < 0)
    total = 0;
  w->pad_begin[d] = is_upper ? total / 2 : total - total / 2;
  w->pad_end[d] = total - w->pad_begin[d];
}

enum auto_pad { PAD_NOTSET, PAD_VALID, PAD_SAME_UPPER, PAD_SAME_LOWER };

/* With a mode other than NOTSET, the pads given do not count. */
static int read_auto_pad(struct windows *w, const struct node *node, enum auto_pad *mode, struct err *err) {
  static const char *const modes[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
  const char *text = node_attr_string(node, "auto_pad", "NOTSET");
  *mode = PAD_NOTSET;
  while (strcmp(modes[*mode], text) != 0)
    if (++*mode > PAD_SAME_LOWER)
      return node_error(node, err, ERR_INVALID, "auto_pad '%.40s' is unknown", text);
  for (int d = 0; d < WINDOWS_DIMS && *mode != PAD_NOTSET; d++)
    w->pad_begin[d] = w->pad_end[d] = 0;
  return ERR_OK;
}

/* Windows along one dimension. With ceil_mode the last may reach beyond the padding, but not begin there; it
   may be the only one (transformers' EfficientNet takes its mean so). */
static int64_t count_windows(const struct windows *w, int d) {
  int64_t room = w->in[d] + w->pad_begin[d] + w->pad_end[d] - kernel_extent(w, d);
  int64_t count;
  if (w->is_ceil)
    room += w->stride[d] - 1;
  if (room < 0)
    return 0;
  count = room / w->stride[d] + 1;
  if (w->is_ceil && (count - 1) * w->stride[d] >= w->in[d] + w->pad_begin[d])
    count--;
  return count;
}

/* Sizes of 1 along every dimension. */
static int windows_start(struct windows *w, const struct node *node, const struct shape *x, struct err *err) {
  char text[128];
  *w = (struct windows){.dims = x->rank - 2, .in_elems = 1, .out_elems = 1, .taps = 1};
  if (w->dims < 1 || w->dims > WINDOWS_DIMS)
    return node_error(node, err, w->dims < 1 ? ERR_INVALID : ERR_UNSUPPORTED,
                      "input of shape %s; 1 to 3 spatial dimensions are supported",
                      shape_text(x, text, sizeof text));
  for (int d = 0; d < WINDOWS_DIMS; d++)
    w->in[d] = w->out[d] = w->kernel[d] = w->stride[d] = w->dilation[d] = 1;
  return ERR_OK;
}

static int windows_finish(struct windows *w, const struct node *node, struct err *err) {
  for (int d = 0; d < WINDOWS_DIMS; d++)
    if (__builtin_mul_overflow(w->in_elems, w->in[d], &w->in_elems) ||
        __builtin_mul_overflow(w->out_elems, w->out[d], &w->out_elems) ||
        __builtin_mul_overflow(w->taps, w->kernel[d], &w->taps))
      return node_error(node, err, ERR_INVALID, "its windows are too many to count");
  return ERR_OK;
}

int windows_init(struct windows *w, const struct node *node, const struct shape *x, const int64_t *kernel,
                 struct err *err) {
  enum auto_pad mode;
  if (windows_start(w, node, x, err))
    return err->code;
  for (int i = 0; i < w->dims; i++)
    w->in[WINDOWS_DIMS - w->dims + i] = x->dim[2 + i];
  if (read_attributes(w, node, kernel, err) || read_auto_pad(w, node, &mode, err))
    return err->code;
  for (int d = WINDOWS_DIMS - w->dims; d < WINDOWS_DIMS; d++) {
    if (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER)
      pad_same(w, d, mode == PAD_SAME_UPPER);
    w->out[d] = count_windows(w, d);
    if (w->out[d] < 1)
      return node_error(node, err, ERR_INVALID,
                        "a kernel that spans %lld does not fit into %lld elements and their padding",
                        (long long)kernel_extent(w, d), (long long)w->in[d]);
  }
  return windows_finish(w, node, err);
}

/* What the attributes say of a dimension of a transposed convolution's result. */
struct transposed {
  enum auto_pad mode;
  int64_t size;  /* 0: by the formula */
  int64_t added; /* output_padding */
};

/* The size of what windows over it give w->out[d] of. Pads become those with which they cover it exactly:
   behind it fewer than none, where it has elements that no window reaches. */
static int transpose_dimension(struct windows *w, const struct node *node, int d,
                               const struct transposed *given, struct err *err) {
  enum auto_pad mode = given->mode;
  int64_t size = given->size, added = given->added, reach, total;
  if (w->out[d] > size_max)
    return node_error(node, err, ERR_INVALID, "its input of %lld elements is too long", (long long)w->out[d]);
  reach = (w->out[d] - 1) * w->stride[d] + kernel_extent(w, d);
  if (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER)
    size = size ? size : w->out[d] * w->stride[d];
  if (size) {
    total = reach + added - size > 0 ? reach + added - size : 0;
    w->pad_begin[d] = mode == PAD_SAME_UPPER ? total / 2 : total - total / 2;
  } else {
    size = reach + added - w->pad_begin[d] - w->pad_end[d];
  }
  if (size < 1)
    return node_error(node, err, ERR_INVALID, "a result of %lld elements along a dimension", (long long)size);
  w->in[d] = size;
  w->pad_end[d] = reach - size - w->pad_begin[d];
  return ERR_OK;
}

int windows_init_transposed(struct windows *w, const struct node *node, const struct shape *x,
                            const int64_t *kernel, struct err *err) {
  int64_t sizes[WINDOWS_DIMS], added[WINDOWS_DIMS];
  bool is_given = node_attr(node, "output_shape") != NULL;
  enum auto_pad mode;
  if (windows_start(w, node, x, err) || read_attributes(w, node, kernel, err) ||
      read_auto_pad(w, node, &mode, err) ||
      read_sizes(node, (struct sizes){"output_padding", w->dims, 0, 0}, added, err) ||
      read_sizes(node, (struct sizes){"output_shape", w->dims, is_given, 0}, sizes, err))
    return err->code;
  for (int i = 0; i < w->dims; i++) {
    int d = WINDOWS_DIMS - w->dims + i;
    w->out[d] = x->dim[2 + i];
    if (transpose_dimension(w, node, d, &(struct transposed){mode, sizes[i], added[i]}, err))
      return err->code;
  }
  return windows_finish(w, node, err);
}

struct shape windows_out_shape(const struct windows *w, int64_t n, int64_t c) {
  struct shape shape = {.rank = 2 + w->dims, .dim = {n, c}};
  for (int i = 0; i < w->dims; i++)
    shape.dim[2 + i] = w->out[WINDOWS_DIMS - w->dims + i];
  return shape;
}

static struct attr list_attr(const char *name, const int64_t *values, int n) {
  return (struct attr){.name = name, .type = ATTR_INTS, .ints = values, .n = n};
}

int windows_attrs(const struct windows *w, struct windows_lists *lists, struct attr *attrs) {
  int first = WINDOWS_DIMS - w->dims;
  for (int i = 0; i < w->dims; i++) {
    lists->kernel[i] = w->kernel[first + i];
    lists->stride[i] = w->stride[first + i];
    lists->dilation[i] = w->dilation[first + i];
    lists->pads[i] = w->pad_begin[first + i];
    lists->pads[w->dims + i] = w->pad_end[first + i];
  }
  attrs[0] = list_attr("kernel_shape", lists->kernel, w->dims);
  attrs[1] = list_attr("strides", lists->stride, w->dims);
  attrs[2] = list_attr("dilations", lists->dilation, w->dims);
  attrs[3] = list_attr("pads", lists->pads, 2 * w->dims);
  attrs[4] = (struct attr){.name = "ceil_mode", .type = ATTR_INT, .i = w->is_ceil};
  return WINDOWS_ATTRS;
}

static int64_t divide_up(int64_t a, int64_t b) {
  return a <= 0 ? 0 : (a + b - 1) / b;
}

/* Where window `out` begins along each dimension, in the input's coordinates. */
static void window_origin(const struct windows *w, int64_t out, int64_t origin[WINDOWS_DIMS]) {
  for (int d = WINDOWS_DIMS - 1; d >= 0; d--) {
    origin[d] = out % w->out[d] * w->stride[d] - w->pad_begin[d];
    out /= w->out[d];
  }
}

static int64_t least_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void windows_at(struct windows_tap *tap, const struct windows *w, int64_t out) {
  tap->windows = w;
  tap->is_empty = false;
  window_origin(w, out, tap->origin);
  for (int d = 0; d < WINDOWS_DIMS; d++) {
    tap->begin[d] = tap->at[d] = divide_up(-tap->origin[d], w->dilation[d]);
    tap->end[d] = least_of(w->kernel[d], divide_up(w->in[d] - tap->origin[d], w->dilation[d]));
    tap->is_empty |= tap->begin[d] >= tap->end[d];
  }
  tap->at[WINDOWS_DIMS - 1]--;
}

bool windows_next(struct windows_tap *tap) {
  const struct windows *w = tap->windows;
  if (tap->is_empty)
    return false;
  for (int d = WINDOWS_DIMS - 1; ++tap->at[d] >= tap->end[d]; d--) {
    if (d == 0)
      return false;
    tap->at[d] = tap->begin[d];
  }
  tap->in = tap->index = 0;
  for (int d = 0; d < WINDOWS_DIMS; d++) {
    tap->in = tap->in * w->in[d] + tap->origin[d] + tap->at[d] * w->dilation[d];
    tap->index = tap->index * w->kernel[d] + tap->at[d];
  }
  return true;
}

int64_t windows_padded_taps(const struct windows *w, int64_t out) {
  int64_t origin[WINDOWS_DIMS], taps = 1;
  window_origin(w, out, origin);
  for (int d = 0; d < WINDOWS_DIMS; d++)
    taps *= least_of(w->kernel[d], divide_up(w->in[d] + w->pad_end[d] - origin[d], w->dilation[d]));
  return taps;
}

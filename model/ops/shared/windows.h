/* The windows that convolutions and pools slide over 1 to 3 spatial dimensions: geometry by ONNX's rules, and
   the walk over a window's taps. Missing leading dimensions have size 1, so kernels always see three. */
#ifndef WEIR_MODEL_OPS_SHARED_WINDOWS_H
#define WEIR_MODEL_OPS_SHARED_WINDOWS_H

#include "model/graph/op.h"

enum { WINDOWS_DIMS = 3, WINDOWS_ATTRS = 5 };

struct windows {
  int dims; /* of the model's, 1 to 3; they are the last of the three */
  int64_t in[WINDOWS_DIMS], out[WINDOWS_DIMS], kernel[WINDOWS_DIMS];
  int64_t stride[WINDOWS_DIMS], dilation[WINDOWS_DIMS];
  int64_t pad_begin[WINDOWS_DIMS], pad_end[WINDOWS_DIMS]; /* resolved: auto_pad is gone */
  int64_t in_elems, out_elems, taps;                      /* products of in, out and kernel */
  bool is_ceil;
};

/* From the node's attributes for an input of shape x [n, c, spatial...] -> windows. kernel: its shape as the
   node's weights have it; NULL: from kernel_shape.
   Errors: INVALID, UNSUPPORTED through node_error. */
int windows_init(struct windows *windows, const struct node *node, const struct shape *x,
                 const int64_t *kernel, struct err *err);

/* From the attributes of a ConvTranspose of x [n, c, spatial...]: the windows over its result, of which there
   are as many as x has elements. `in` is the result's size; pad_end may be negative. */
int windows_init_transposed(struct windows *windows, const struct node *node, const struct shape *x,
                            const int64_t *kernel, struct err *err);

/* [n, c, out...] */
struct shape windows_out_shape(const struct windows *windows, int64_t n, int64_t c);

/* kernel_shape, strides, dilations, pads and ceil_mode for a gradient node. attrs has room for WINDOWS_ATTRS;
   they point into lists, which lives as long. Returns how many they are. */
struct windows_lists {
  int64_t kernel[WINDOWS_DIMS], stride[WINDOWS_DIMS], dilation[WINDOWS_DIMS], pads[2 * WINDOWS_DIMS];
};
int windows_attrs(const struct windows *windows, struct windows_lists *lists, struct attr *attrs);

/* The taps of one window that lie on the input, in order.
   usage: windows_at(&tap, &windows, o); while (windows_next(&tap)) sum += x[tap.in] * w[tap.index]; */
struct windows_tap {
  const struct windows *windows;
  int64_t in;    /* index among the input's spatial elements */
  int64_t index; /* index among the kernel's */
  int64_t origin[WINDOWS_DIMS], begin[WINDOWS_DIMS], end[WINDOWS_DIMS], at[WINDOWS_DIMS];
  bool is_empty;
};

void windows_at(struct windows_tap *tap, const struct windows *windows, int64_t out);
bool windows_next(struct windows_tap *tap);

/* The taps of one window that lie on the input or its padding (not beyond it, where ceil_mode may reach). */
int64_t windows_padded_taps(const struct windows *windows, int64_t out);

#endif

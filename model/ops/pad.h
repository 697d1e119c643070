/* How a Pad lengthens a tensor. */
#ifndef WEIR_MODEL_OPS_PAD_H
#define WEIR_MODEL_OPS_PAD_H

#include "model/graph/op.h"

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP, PAD_UNKNOWN };

struct pad {
  enum pad_mode mode;
  int64_t counts[2 * RANK_MAX]; /* before each axis, then behind each */
  struct shape in, out;
};

/* Of a Pad, or a PadGrad, of a tensor of shape `in`. Errors: INVALID, UNSUPPORTED. */
int pad_read(const struct graph *graph, const struct node *node, const struct shape *in, struct pad *pad,
             struct err *err);

/* Where element i, counted from the tensor's first, comes from among n; -1: from nowhere. */
int64_t pad_source(enum pad_mode mode, int64_t i, int64_t n);

#endif

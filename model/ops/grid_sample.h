/* How a GridSample reads its input. */
#ifndef WEIR_MODEL_OPS_GRID_SAMPLE_H
#define WEIR_MODEL_OPS_GRID_SAMPLE_H

#include "model/graph/op.h"

enum { GRID_DIMS_MAX = 3 };
enum grid_mode { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC };
enum grid_padding { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };

/* x is [n,channels,in...], the grid [n,out...,dims]. */
struct grid_sampler {
  enum grid_mode mode;
  enum grid_padding padding;
  bool is_aligned; /* -1 and 1 are the centers of the outermost elements */
  int dims;
  int64_t in[GRID_DIMS_MAX];
  int64_t n, channels, in_elems, out_elems;
};

/* Of a GridSample, or of its gradients. Errors: INVALID, UNSUPPORTED for more than GRID_DIMS_MAX dimensions.
 */
int grid_sampler_init(struct grid_sampler *s, const struct node *node, const struct shape *x,
                      const struct shape *grid, struct err *err);

#endif

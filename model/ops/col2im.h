/* The geometry of Col2Im, for its kernels. */
#ifndef WEIR_MODEL_OPS_COL2IM_H
#define WEIR_MODEL_OPS_COL2IM_H

#include "model/ops/shared/windows.h"

/* Of a Col2Im node: the shape of its result [n, c, spatial...], and the windows over it. Errors: INVALID,
   UNSUPPORTED through node_error. */
int col2im_windows(const struct graph *graph, const struct node *node, struct shape *image,
                   struct windows *windows, struct err *err);

#endif

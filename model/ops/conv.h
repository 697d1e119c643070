/* The geometry of a convolution, for Conv, its gradients and ConvTranspose. */
#ifndef WEIR_MODEL_OPS_CONV_H
#define WEIR_MODEL_OPS_CONV_H

#include "model/ops/shared/windows.h"

/* x f32[n, groups * group_in, in...], w f32[groups * group_out, group_in, kernel...]
   -> y f32[n, groups * group_out, out...] */
struct conv {
  struct windows windows;
  int64_t n, groups, group_in, group_out;
};

/* From the attributes of a Conv, or of one of its gradient nodes; x and w: shapes. Errors: INVALID,
 * UNSUPPORTED. */
int conv_init(struct conv *conv, const struct node *node, const struct shape *x, const struct shape *w,
              struct err *err);

/* The gradient of x, which is what ConvTranspose makes of dy. */
void conv_scatter(const struct conv *conv, const float *dy, const float *w, float *dx);

#endif

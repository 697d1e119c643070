/* scale: x * scale. */
#include "worker/data/transform.h"

static int scale_check(const Weir__Transform *transform, int64_t channels, struct err *err) {
  (void)transform;
  (void)channels;
  (void)err;
  return 0;
}

static void scale_apply(const Weir__Transform *transform, float *x, int64_t elems, int64_t channels) {
  float scale = (float)transform->scale;
  (void)channels;
  for (int64_t i = 0; i < elems; i++)
    x[i] *= scale;
}

const struct transform_def transform_scale = {"scale", scale_check, scale_apply};

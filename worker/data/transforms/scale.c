/* scale: x * scale. */
#include "worker/data/transform.h"

static void scale_pointwise(const Weir__Transform *transform, int64_t channel, float *x, int64_t elems) {
  float scale = (float)transform->scale;
  (void)channel;
  for (int64_t i = 0; i < elems; i++)
    x[i] *= scale;
}

const struct transform_def transform_scale = {.name = "scale", .pointwise = scale_pointwise};

/* cutout: a square of `size` around a place that is drawn, cut at the borders, becomes zero. Source: DeVries
   and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout" (2017), where it comes
   after normalize, so that zero is the mean. In evaluation: nothing. */
#include "worker/data/transform.h"
#include "worker/data/transforms/geometry.h"

#include <string.h>

#include "common/agree/random.h"

static int cutout_check(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
                        struct err *err) {
  int64_t height, width;
  (void)is_training;
  (void)shape;
  return geometry_size(transform->cutout->size, transform->cutout->n_size, &height, &width, err);
}

static int64_t edge_within(int64_t at, int64_t most) {
  return at < 0 ? 0 : at < most ? at : most;
}

static int cutout_apply(const Weir__Transform *transform, const struct transform_context *context,
                        struct sample *sample, struct err *err) {
  const Weir__Cutout *cutout = transform->cutout;
  int64_t height = cutout->size[0], width = cutout->size[cutout->n_size - 1], top, left, bottom, right;
  float *x;
  if (!context->is_training)
    return 0;
  x = sample_floats(sample);
  if (!x)
    return err_set(err, ERR_NO_MEMORY, "no memory for a sample");
  top = geometry_draw(random_bits(context->key, 0), sample->shape.height) - height / 2;
  left = geometry_draw(random_bits(context->key, 1), sample->shape.width) - width / 2;
  bottom = edge_within(top + height, sample->shape.height);
  right = edge_within(left + width, sample->shape.width);
  top = edge_within(top, sample->shape.height);
  left = edge_within(left, sample->shape.width);
  for (int64_t c = 0; c < sample->shape.channels; c++)
    for (int64_t y = top; y < bottom; y++)
      memset(x + (c * sample->shape.height + y) * sample->shape.width + left, 0,
             (size_t)(right - left) * sizeof *x);
  return 0;
}

const struct transform_def transform_cutout = {
    .name = "cutout", .check = cutout_check, .apply = cutout_apply};

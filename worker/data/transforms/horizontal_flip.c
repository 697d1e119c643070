/* horizontal_flip: mirrors left and right with probability p, as
   torchvision.transforms.v2.RandomHorizontalFlip. In evaluation: nothing. */
#include "worker/data/transform.h"

#include "common/agree/random.h"

static int horizontal_flip_check(const Weir__Transform *transform, bool is_training,
                                 struct image_shape *shape, struct err *err) {
  double p = transform->horizontal_flip->p;
  (void)is_training;
  (void)shape;
  return p >= 0 && p <= 1 ? 0 : err_set(err, ERR_INVALID, "p: must be from 0 to 1");
}

static int horizontal_flip_apply(const Weir__Transform *transform, const struct transform_context *context,
                                 struct sample *sample, struct err *err) {
  int64_t last = (sample->shape.width - 1) * sample->pixel_step;
  (void)err;
  if (!context->is_training || (double)random_uniform(context->key, 0) >= transform->horizontal_flip->p)
    return 0;
  sample->data = (const char *)sample->data + last * (int64_t)dtype_size(sample->dtype);
  sample->pixel_step = -sample->pixel_step;
  return 0;
}

const struct transform_def transform_horizontal_flip = {
    .name = "horizontal_flip", .check = horizontal_flip_check, .apply = horizontal_flip_apply};

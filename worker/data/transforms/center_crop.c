/* center_crop: the middle of an image, as torchvision.transforms.v2.CenterCrop: a smaller image is put into
   the middle of zeros. */
#include "worker/data/transforms/geometry.h"
#include "worker/data/transform.h"

static int center_crop_check(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
                             struct err *err) {
  const Weir__CenterCrop *crop = transform->center_crop;
  (void)is_training;
  return geometry_size(crop->size, crop->n_size, &shape->height, &shape->width, err);
}

static int center_crop_apply(const Weir__Transform *transform, const struct transform_context *context,
                             struct sample *sample, struct err *err) {
  const Weir__CenterCrop *crop = transform->center_crop;
  int64_t height = crop->size[0], width = crop->size[crop->n_size - 1];
  (void)context;
  return geometry_cut(sample, geometry_center(&sample->shape, height, width), 0, err);
}

const struct transform_def transform_center_crop = {
    .name = "center_crop", .check = center_crop_check, .apply = center_crop_apply};

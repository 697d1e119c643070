/* resize: bilinear with antialias, as torchvision.transforms.v2.Resize of a f32 tensor. size: [height,
   width]; one number is the shorter side, and the other keeps the ratio. */
#include "worker/data/transforms/geometry.h"
#include "worker/data/transform.h"

static struct image_shape resize_shape(const Weir__Resize *resize, struct image_shape shape) {
  int64_t size = resize->size[0];
  if (resize->n_size == 2)
    return (struct image_shape){shape.channels, size, resize->size[1]};
  if (shape.width <= shape.height)
    return (struct image_shape){shape.channels, size * shape.height / shape.width, size};
  return (struct image_shape){shape.channels, size, size * shape.width / shape.height};
}

static int resize_check(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
                        struct err *err) {
  const Weir__Resize *resize = transform->resize;
  int64_t height, width;
  (void)is_training;
  if (geometry_size(resize->size, resize->n_size, &height, &width, err))
    return err->code;
  if (resize->n_size == 1 && (shape->height < 0 || shape->width < 0))
    shape->height = shape->width = -1;
  else
    *shape = resize_shape(resize, *shape);
  return 0;
}

static int resize_apply(const Weir__Transform *transform, const struct transform_context *context,
                        struct sample *sample, struct err *err) {
  struct image_shape shape = resize_shape(transform->resize, sample->shape);
  (void)context;
  if (geometry_check_pixels(shape.height, shape.width, err))
    return err->code;
  return geometry_resize(sample, shape.height, shape.width, err);
}

const struct transform_def transform_resize = {
    .name = "resize", .check = resize_check, .apply = resize_apply};

/* random_crop: a window of `size` anywhere in the image with `padding` around it, as
   torchvision.transforms.v2.RandomCrop. In evaluation: the middle, without padding. */
#include "worker/data/transform.h"
#include "worker/data/transforms/geometry.h"

#include <math.h>

#include "common/agree/random.h"

struct padding {
  int64_t left, top, right, bottom;
};

/* torchvision's order: all; left and right, top and bottom; or left, top, right, bottom. */
static struct padding padding_of(const Weir__RandomCrop *crop) {
  const uint32_t *given = crop->padding;
  switch (crop->n_padding) {
  case 0:
    return (struct padding){0};
  case 1:
    return (struct padding){given[0], given[0], given[0], given[0]};
  case 2:
    return (struct padding){given[0], given[1], given[0], given[1]};
  default:
    return (struct padding){given[0], given[1], given[2], given[3]};
  }
}

static int refuse_size(const struct image_shape *shape, int64_t height, int64_t width, struct err *err) {
  return err_set(err, ERR_INVALID,
                 "size: %lld x %lld pixels cannot be cut out of %lld x %lld with its padding",
                 (long long)height, (long long)width, (long long)shape->height, (long long)shape->width);
}

/* How many places there are for the window, down and along. */
static bool count_places(const Weir__RandomCrop *crop, const struct image_shape *shape, int64_t *down,
                         int64_t *along) {
  struct padding padding = padding_of(crop);
  *down = shape->height + padding.top + padding.bottom - crop->size[0] + 1;
  *along = shape->width + padding.left + padding.right - crop->size[crop->n_size - 1] + 1;
  return *down > 0 && *along > 0;
}

static int random_crop_check(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
                             struct err *err) {
  const Weir__RandomCrop *crop = transform->random_crop;
  struct image_shape before = *shape;
  int64_t down, along;
  if (geometry_size(crop->size, crop->n_size, &shape->height, &shape->width, err))
    return err->code;
  if (crop->n_padding == 3 || crop->n_padding > 4)
    return err_set(err, ERR_INVALID, "padding: wants 1, 2 or 4 numbers");
  for (size_t i = 0; i < crop->n_padding; i++)
    if (crop->padding[i] > 1 << 16)
      return err_set(err, ERR_INVALID, "padding: must be at most %d", 1 << 16);
  if (!isfinite((float)crop->fill))
    return err_set(err, ERR_INVALID, "fill: must be finite");
  if (is_training && before.height >= 0 && before.width >= 0 && !count_places(crop, &before, &down, &along))
    return refuse_size(&before, shape->height, shape->width, err);
  return 0;
}

static int random_crop_apply(const Weir__Transform *transform, const struct transform_context *context,
                             struct sample *sample, struct err *err) {
  const Weir__RandomCrop *crop = transform->random_crop;
  struct padding padding = padding_of(crop);
  struct window window = {0, 0, crop->size[0], crop->size[crop->n_size - 1]};
  int64_t down, along;
  if (!context->is_training)
    return geometry_cut(sample, geometry_center(&sample->shape, window.height, window.width), crop->fill,
                        err);
  if (!count_places(crop, &sample->shape, &down, &along))
    return refuse_size(&sample->shape, window.height, window.width, err);
  window.top = geometry_draw(random_bits(context->key, 0), down) - padding.top;
  window.left = geometry_draw(random_bits(context->key, 1), along) - padding.left;
  return geometry_cut(sample, window, crop->fill, err);
}

const struct transform_def transform_random_crop = {
    .name = "random_crop", .check = random_crop_check, .apply = random_crop_apply};

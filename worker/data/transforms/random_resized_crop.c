/* random_resized_crop: a window of a random area and ratio, resized to `size`, as
   torchvision.transforms.v2.RandomResizedCrop. In evaluation, as its recipes do: resized so that the middle
   of `size` is 224 / 256 of the shorter side, then cut to that. */
#include "worker/data/transform.h"
#include "worker/data/transforms/geometry.h"

#include <math.h>

#include "common/agree/random.h"

enum { TRIES = 10, DRAWS_PER_TRY = 4 };

static const double default_scale[] = {0.08, 1}, default_ratio[] = {3.0 / 4, 4.0 / 3};

static int check_range(const double *range, size_t n, const char *name, double most, struct err *err) {
  if (n == 0 || (n == 2 && range[0] > 0 && range[0] <= range[1] && range[1] <= most))
    return 0;
  return err_set(err, ERR_INVALID, "%s: wants [least, most], above 0 and at most %g", name, most);
}

static int random_resized_crop_check(const Weir__Transform *transform, bool is_training,
                                     struct image_shape *shape, struct err *err) {
  const Weir__RandomResizedCrop *crop = transform->random_resized_crop;
  (void)is_training;
  if (check_range(crop->scale, crop->n_scale, "scale", 1, err) ||
      check_range(crop->ratio, crop->n_ratio, "ratio", 1000, err))
    return err->code;
  return geometry_size(crop->size, crop->n_size, &shape->height, &shape->width, err);
}

static double draw_between(uint64_t key, uint64_t index, double least, double most) {
  return least + (most - least) * (double)random_uniform(key, index);
}

/* The whole image but for what its ratio is beyond the range. */
static struct window middle_window(const struct image_shape *shape, const double *ratio) {
  double height = (double)shape->height, width = (double)shape->width;
  struct window window = {0, 0, shape->height, shape->width};
  if (width / height < ratio[0])
    window.height = (int64_t)rint(width / ratio[0]);
  else if (width / height > ratio[1])
    window.width = (int64_t)rint(height * ratio[1]);
  window.height = window.height < 1 ? 1 : window.height;
  window.width = window.width < 1 ? 1 : window.width;
  window.top = (shape->height - window.height) / 2;
  window.left = (shape->width - window.width) / 2;
  return window;
}

static struct window draw_window(const Weir__RandomResizedCrop *crop, const struct image_shape *shape,
                                 uint64_t key) {
  const double *scale = crop->n_scale ? crop->scale : default_scale;
  const double *ratio = crop->n_ratio ? crop->ratio : default_ratio;
  double area = (double)shape->height * (double)shape->width;
  for (uint64_t at = 0; at < TRIES * DRAWS_PER_TRY; at += DRAWS_PER_TRY) {
    double target = area * draw_between(key, at, scale[0], scale[1]);
    double aspect = exp(draw_between(key, at + 1, log(ratio[0]), log(ratio[1])));
    int64_t width = (int64_t)rint(sqrt(target * aspect)), height = (int64_t)rint(sqrt(target / aspect));
    if (width < 1 || width > shape->width || height < 1 || height > shape->height)
      continue;
    return (struct window){geometry_draw(random_bits(key, at + 2), shape->height - height + 1),
                           geometry_draw(random_bits(key, at + 3), shape->width - width + 1), height, width};
  }
  return middle_window(shape, ratio);
}

/* What is cut from the middle is resized by itself: nothing else of the image would be seen. */
static int crop_middle(struct sample *sample, int64_t height, int64_t width, struct err *err) {
  int64_t down = (int64_t)rint((double)height * 256 / 224), along = (int64_t)rint((double)width * 256 / 224);
  const struct image_shape *shape = &sample->shape;
  if (shape->height * along <= shape->width * down)
    along = down * shape->width / shape->height;
  else
    down = along * shape->height / shape->width;
  if (geometry_check_pixels(down, along, err) || geometry_resize(sample, down, along, err))
    return err->code;
  return geometry_cut(sample, geometry_center(&sample->shape, height, width), 0, err);
}

static int random_resized_crop_apply(const Weir__Transform *transform,
                                     const struct transform_context *context, struct sample *sample,
                                     struct err *err) {
  const Weir__RandomResizedCrop *crop = transform->random_resized_crop;
  int64_t height = crop->size[0], width = crop->size[crop->n_size - 1];
  struct window window;
  if (!context->is_training)
    return crop_middle(sample, height, width, err);
  window = draw_window(crop, &sample->shape, context->key);
  sample_cut(sample, window.top, window.left, window.height, window.width);
  return geometry_resize(sample, height, width, err);
}

const struct transform_def transform_random_resized_crop = {
    .name = "random_resized_crop", .check = random_resized_crop_check, .apply = random_resized_crop_apply};

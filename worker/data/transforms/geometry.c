/* Sizes and windows. */
#include "worker/data/transforms/geometry.h"

#include <math.h>
#include <string.h>

#include "worker/data/formats/image.h"

int geometry_size(const uint32_t *size, size_t n, int64_t *height, int64_t *width, struct err *err) {
  if (n != 1 && n != 2)
    return err_set(err, ERR_INVALID, "size: wants [height, width], or one number for both");
  *height = size[0];
  *width = size[n - 1];
  return geometry_check_pixels(*height, *width, err);
}

int geometry_check_pixels(int64_t height, int64_t width, struct err *err) {
  if (height >= 1 && width >= 1 && height <= IMAGE_SIDE_MAX && width <= IMAGE_SIDE_MAX &&
      height * width <= IMAGE_PIXELS_MAX)
    return 0;
  return err_set(err, ERR_INVALID,
                 "size: %lld x %lld pixels; sides are from 1 to %d, and at most %d pixels are made",
                 (long long)height, (long long)width, IMAGE_SIDE_MAX, IMAGE_PIXELS_MAX);
}

int64_t geometry_draw(uint64_t bits, int64_t count) {
  return (int64_t)(((bits >> 32) * (uint64_t)count) >> 32);
}

struct window geometry_center(const struct image_shape *shape, int64_t height, int64_t width) {
  int64_t top = shape->height < height ? -((height - shape->height) / 2)
                                       : (int64_t)rint((double)(shape->height - height) / 2);
  int64_t left = shape->width < width ? -((width - shape->width) / 2)
                                      : (int64_t)rint((double)(shape->width - width) / 2);
  return (struct window){top, left, height, width};
}

static bool lies_within(const struct window *window, const struct image_shape *shape) {
  return window->top >= 0 && window->left >= 0 && window->top + window->height <= shape->height &&
         window->left + window->width <= shape->width;
}

/* What of the window lies within the image, in the image's coordinates. */
static struct window window_overlap(const struct window *window, const struct image_shape *shape) {
  int64_t top = window->top > 0 ? window->top : 0, left = window->left > 0 ? window->left : 0;
  int64_t bottom = window->top + window->height, right = window->left + window->width;
  bottom = bottom < shape->height ? bottom : shape->height;
  right = right < shape->width ? right : shape->width;
  if (bottom <= top || right <= left)
    return (struct window){0};
  return (struct window){top, left, bottom - top, right - left};
}

/* Bytes whose rows lie together keep their order: a row is `width` groups of `group` bytes. */
static bool cut_bytes(struct sample *sample, const struct window *window, int fill) {
  struct image_shape shape = sample->shape;
  int64_t group = sample->channel_step <= 1 ? sample->pixel_step : 1, planes = group > 1 ? 1 : shape.channels;
  struct window inner = window_overlap(window, &shape);
  size_t row_bytes = (size_t)(window->width * group), plane_bytes = row_bytes * (size_t)window->height;
  uint8_t *borders = scratch_get(sample->scratch, SCRATCH_BORDERS, plane_bytes * (size_t)planes);
  if (!borders)
    return false;
  memset(borders, fill, plane_bytes * (size_t)planes);
  for (int64_t p = 0; p < planes; p++) {
    const uint8_t *from = (const uint8_t *)sample->data + p * sample->channel_step +
                          inner.top * sample->row_step + inner.left * group;
    uint8_t *to = borders + (size_t)p * plane_bytes + (size_t)(inner.top - window->top) * row_bytes +
                  (inner.left - window->left) * group;
    for (int64_t y = 0; y < inner.height; y++)
      memcpy(to + (size_t)y * row_bytes, from + y * sample->row_step, (size_t)(inner.width * group));
  }
  sample->data = borders;
  sample->shape.height = window->height;
  sample->shape.width = window->width;
  sample->row_step = (int64_t)row_bytes;
  sample->channel_step = planes > 1 ? (int64_t)plane_bytes : sample->channel_step;
  return true;
}

static bool cut_floats(struct sample *sample, const struct window *window, float fill) {
  const float *from = sample_floats(sample);
  struct sample whole = *sample;
  struct image_shape shape = {whole.shape.channels, window->height, window->width};
  struct window inner = window_overlap(window, &whole.shape);
  float *to = from ? sample_renew(sample, shape) : NULL;
  if (!to)
    return false;
  for (int64_t i = 0; i < shape.channels * shape.height * shape.width; i++)
    to[i] = fill;
  for (int64_t c = 0; c < shape.channels; c++)
    for (int64_t y = 0; y < inner.height; y++)
      memcpy(to + (c * shape.height + inner.top - window->top + y) * shape.width + inner.left - window->left,
             from + (c * whole.shape.height + inner.top + y) * whole.shape.width + inner.left,
             (size_t)inner.width * sizeof *to);
  return true;
}

/* Bytes can stay bytes: not mirrored, nothing was computed from them yet, and the fill is one. */
static bool keeps_bytes(const struct sample *sample, double fill) {
  bool is_row = sample->pixel_step == 1 || (sample->pixel_step > 0 && sample->channel_step <= 1);
  return sample->dtype == DTYPE_U8 && !sample->values && is_row && fill >= 0 && fill < BYTE_VALUES &&
         fill == (int)fill && sample->data != sample->scratch->data[SCRATCH_BORDERS];
}

int geometry_cut(struct sample *sample, struct window window, double fill, struct err *err) {
  if (lies_within(&window, &sample->shape)) {
    sample_cut(sample, window.top, window.left, window.height, window.width);
    return 0;
  }
  if (keeps_bytes(sample, fill) ? cut_bytes(sample, &window, (int)fill)
                                : cut_floats(sample, &window, (float)fill))
    return 0;
  return err_set(err, ERR_NO_MEMORY, "no memory for %lld x %lld pixels", (long long)window.height,
                 (long long)window.width);
}

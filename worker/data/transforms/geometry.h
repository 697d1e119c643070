/* What several transforms of images need: sizes, windows and resampling. */
#ifndef WEIR_WORKER_DATA_TRANSFORMS_GEOMETRY_H
#define WEIR_WORKER_DATA_TRANSFORMS_GEOMETRY_H

#include "worker/data/sample.h"

/* A place in an image, which may reach beyond it. */
struct window {
  int64_t top, left, height, width;
};

/* A size option: [height, width], or one number for both. Errors: INVALID unless each is from 1 to
   IMAGE_SIDE_MAX. */
int geometry_size(const uint32_t *size, size_t n, int64_t *height, int64_t *width, struct err *err);

/* Whether an image of that size is made. Errors: INVALID. */
int geometry_check_pixels(int64_t height, int64_t width, struct err *err);

/* Narrows the sample to the window; what of it lies beyond the sample is `fill`, of the elements' own scale.
   Errors: NO_MEMORY. */
int geometry_cut(struct sample *sample, struct window window, double fill, struct err *err);

/* The window of that size in the middle, rounded as torchvision's center_crop. */
struct window geometry_center(const struct image_shape *shape, int64_t height, int64_t width);

/* Resamples to that size: bilinear with antialias, as torch.nn.functional.interpolate's, in f32. Errors:
   NO_MEMORY. */
int geometry_resize(struct sample *sample, int64_t height, int64_t width, struct err *err);

/* A whole number in [0, count), all alike, from 64 random bits. count: at most 2^31. */
int64_t geometry_draw(uint64_t bits, int64_t count);

#endif

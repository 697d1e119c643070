/* Images: files of JPEG or PNG, decoded from memory. */
#ifndef WEIR_WORKER_DATA_FORMATS_IMAGE_H
#define WEIR_WORKER_DATA_FORMATS_IMAGE_H

#include "worker/data/sample.h"

enum {
  IMAGE_PIXELS_MAX = 1 << 26,     /* larger ones are refused before memory is asked for */
  IMAGE_SIDE_MAX = 65500,         /* what JPEG can hold */
  IMAGE_FILE_BYTES_MAX = 1 << 28, /* likewise */
};

/* Makes the sample a view of the image's bytes, which lie in its scratch: RGB, or where
   sample->shape.channels is 1 the luma of ITU-R 601, as Pillow's Image.convert("RGB") and ("L") give them. Of
   16 bits the upper 8 count (of gray, too, which Pillow clips at 255); alpha, gamma, colour profiles and
   orientation do not. What comes after the image is not looked at. Errors: CORRUPT (damaged or cut short),
   INVALID (not JPEG or PNG, or too large), UNSUPPORTED, NO_MEMORY. */
int image_decode(const void *bytes, size_t size, struct sample *sample, struct err *err);

/* The two formats, for image_decode. They set the shape and give u8[height, width, channels] in
   SCRATCH_PIXELS, with 1 channel or 3, whatever is asked for. */
int image_decode_jpeg(const void *bytes, size_t size, struct scratch *scratch, struct image_shape *shape,
                      struct err *err);
int image_decode_png(const void *bytes, size_t size, struct scratch *scratch, struct image_shape *shape,
                     struct err *err);

/* Whether that many pixels are decoded. Errors: INVALID. */
int image_check_size(const struct image_shape *shape, struct err *err);

/* Memory for the decoded image in SCRATCH_PIXELS; its size was checked. NULL: NO_MEMORY. */
uint8_t *image_pixels(struct scratch *scratch, const struct image_shape *shape, struct err *err);

#endif

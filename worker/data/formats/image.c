/* Images of either format. */
#include "worker/data/formats/image.h"

#include <string.h>

static const unsigned char jpeg_magic[] = {0xff, 0xd8, 0xff}, png_magic[] = {0x89, 'P', 'N', 'G'};

int image_check_size(const struct image_shape *shape, struct err *err) {
  bool has_size = shape->height > 0 && shape->width > 0 && shape->height <= IMAGE_SIDE_MAX &&
                  shape->width <= IMAGE_SIDE_MAX && shape->height * shape->width <= IMAGE_PIXELS_MAX;
  if (has_size)
    return 0;
  return err_set(err, ERR_INVALID, "has %lld x %lld pixels; at most %d are decoded", (long long)shape->height,
                 (long long)shape->width, IMAGE_PIXELS_MAX);
}

uint8_t *image_pixels(struct scratch *scratch, const struct image_shape *shape, struct err *err) {
  uint8_t *pixels =
      scratch_get(scratch, SCRATCH_PIXELS, (size_t)(shape->height * shape->width * shape->channels));
  if (!pixels)
    err_set(err, ERR_NO_MEMORY, "no memory for %lld x %lld pixels", (long long)shape->height,
            (long long)shape->width);
  return pixels;
}

/* The luma as Pillow rounds it, in place: rgb u8[n, 3] -> u8[n]. */
static void to_luma(uint8_t *pixels, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    pixels[i] = (uint8_t)((pixels[3 * i] * 19595u + pixels[3 * i + 1] * 38470u + pixels[3 * i + 2] * 7471u +
                           0x8000u) >>
                          16);
}

int image_decode(const void *bytes, size_t size, struct sample *sample, struct err *err) {
  struct image_shape shape = {0};
  int64_t channels = sample->shape.channels, stored;
  uint8_t *pixels;
  int code;
  if (size >= sizeof jpeg_magic && memcmp(bytes, jpeg_magic, sizeof jpeg_magic) == 0)
    code = image_decode_jpeg(bytes, size, sample->scratch, &shape, err);
  else if (size >= sizeof png_magic && memcmp(bytes, png_magic, sizeof png_magic) == 0)
    code = image_decode_png(bytes, size, sample->scratch, &shape, err);
  else
    code = err_set(err, ERR_INVALID, "is neither a JPEG nor a PNG file");
  if (code)
    return code;
  pixels = sample->scratch->data[SCRATCH_PIXELS];
  stored = shape.channels;
  if (channels == 1 && stored == 3) {
    to_luma(pixels, shape.height * shape.width);
    stored = 1;
  }
  shape.channels = channels;
  sample_set_dense(sample, shape, DTYPE_U8, pixels);
  sample->pixel_step = stored;
  sample->row_step = stored * shape.width;
  sample->channel_step = stored > 1; /* a gray image as three equal channels */
  return 0;
}

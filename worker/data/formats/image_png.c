/* PNG by libpng: 8 bits a channel, gray or RGB, whatever the file has. */
#include "worker/data/formats/image.h"

#include <string.h>
#include <png.h>

enum {
  CHUNK_BYTES_MAX = 1 << 20, /* of text and profiles, which nobody reads */
  CHUNKS_MAX = 1000,
  DEFLATE_RATIO_MAX = 1040, /* zlib's "Maximum Compression Factor" is 1032 */
};

struct reader {
  const unsigned char *bytes;
  size_t size, at;
  struct err *err;
};

static void on_error(png_structp library, png_const_charp text) {
  struct reader *reader = png_get_error_ptr(library);
  if (!reader->err->code)
    err_set(reader->err, ERR_CORRUPT, "is a damaged PNG: %s", text);
  png_longjmp(library, 1);
}

static void on_warning(png_structp library, png_const_charp text) {
  (void)library;
  (void)text;
}

static void read_bytes(png_structp library, png_bytep out, size_t n) {
  struct reader *reader = png_get_io_ptr(library);
  if (n > reader->size - reader->at) {
    err_set(reader->err, ERR_CORRUPT, "is a PNG that was cut short");
    png_error(library, "");
  }
  memcpy(out, reader->bytes + reader->at, n);
  reader->at += n;
}

/* Whatever is there becomes gray or RGB of 8 bits. */
static void set_transforms(png_structp library, png_infop info) {
  png_byte type = png_get_color_type(library, info);
  if (type == PNG_COLOR_TYPE_PALETTE)
    png_set_palette_to_rgb(library);
  else if (png_get_bit_depth(library, info) < 8)
    png_set_expand_gray_1_2_4_to_8(library);
  png_set_strip_16(library);
  png_set_strip_alpha(library);
}

static void png_decode(png_structp library, png_infop info, struct scratch *scratch,
                       struct image_shape *shape) {
  struct reader *reader = png_get_io_ptr(library);
  uint8_t *pixels;
  int passes;
  png_read_info(library, info);
  set_transforms(library, info);
  *shape = (struct image_shape){png_get_color_type(library, info) & PNG_COLOR_MASK_COLOR ? 3 : 1,
                                png_get_image_height(library, info), png_get_image_width(library, info)};
  if (image_check_size(shape, reader->err))
    png_error(library, "");
  if (png_get_rowbytes(library, info) / DEFLATE_RATIO_MAX * (size_t)shape->height > reader->size) {
    err_set(reader->err, ERR_CORRUPT, "is a PNG that was cut short: %zu bytes cannot hold %lld x %lld pixels",
            reader->size, (long long)shape->height, (long long)shape->width);
    png_error(library, "");
  }
  pixels = image_pixels(scratch, shape, reader->err);
  if (!pixels)
    png_error(library, "");
  passes = png_set_interlace_handling(library);
  png_read_update_info(library, info);
  if (png_get_rowbytes(library, info) != (size_t)(shape->width * shape->channels))
    png_error(library, "its rows have another size than its header says");
  for (int pass = 0; pass < passes; pass++)
    for (int64_t y = 0; y < shape->height; y++)
      png_read_row(library, pixels + y * shape->width * shape->channels, NULL);
}

int image_decode_png(const void *bytes, size_t size, struct scratch *scratch, struct image_shape *shape,
                     struct err *err) {
  struct reader reader = {bytes, size, 0, err};
  png_structp library = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error, on_warning);
  png_infop info = library ? png_create_info_struct(library) : NULL;
  err->code = ERR_OK;
  if (!info) {
    png_destroy_read_struct(&library, NULL, NULL);
    return err_set(err, ERR_NO_MEMORY, "no memory to decode a PNG");
  }
  if (setjmp(png_jmpbuf(library)) == 0) {
    png_set_read_fn(library, &reader, read_bytes);
    png_set_user_limits(library, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* image_check_size looks at them */
    png_set_chunk_malloc_max(library, CHUNK_BYTES_MAX);
    png_set_chunk_cache_max(library, CHUNKS_MAX);
    png_decode(library, info, scratch, shape);
  }
  png_destroy_read_struct(&library, &info, NULL);
  return err->code;
}

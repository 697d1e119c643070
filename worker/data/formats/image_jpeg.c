/* JPEG by libjpeg-turbo, with what Pillow sets: accurate integer IDCT, smooth upsampling. Damaged data that
   the library can make up for are taken as they come, as Pillow does; a file that ends too soon is refused.
 */
#include "worker/data/formats/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>

enum {
  SCANS_MAX = 200,             /* a progressive file of a few bytes can ask for endless work */
  LIBRARY_BYTES_MAX = 1 << 29, /* what it may allocate, which is 6 bytes a pixel of progressive files */
  PIXELS_PER_BYTE_MAX = 4096,  /* a bit for each of the 3 blocks of 32 x 32 pixels, and then some */
  CMYK_CHANNELS = 4
};

struct decoder {
  struct jpeg_decompress_struct library;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf failed;
  size_t size;
  struct err *err;
};

static struct decoder *decoder_of(j_common_ptr library) {
  return library->client_data;
}

static void jpeg_fail(struct decoder *decoder, enum err_code code, const char *text) {
  err_set(decoder->err, code, "%s", text);
  longjmp(decoder->failed, 1);
}

static void on_error(j_common_ptr library) {
  char text[JMSG_LENGTH_MAX];
  library->err->format_message(library, text);
  if (library->err->msg_code == JERR_OUT_OF_MEMORY || library->err->msg_code == JERR_NO_BACKING_STORE)
    jpeg_fail(decoder_of(library), ERR_NO_MEMORY, "no memory to decode a JPEG of that size");
  err_set(decoder_of(library)->err, ERR_CORRUPT, "is a damaged JPEG: %s", text);
  longjmp(decoder_of(library)->failed, 1);
}

static void on_message(j_common_ptr library, int level) {
  (void)library;
  (void)level;
}

static void on_progress(j_common_ptr library) {
  if (decoder_of(library)->library.input_scan_number > SCANS_MAX)
    jpeg_fail(decoder_of(library), ERR_INVALID, "is a JPEG of more scans than any encoder writes");
}

static void source_begin(j_decompress_ptr library) {
  (void)library;
}

static boolean source_fill(j_decompress_ptr library) {
  jpeg_fail(decoder_of((j_common_ptr)library), ERR_CORRUPT, "is a JPEG that was cut short");
  return FALSE;
}

static void source_skip(j_decompress_ptr library, long bytes) {
  if (bytes > 0 && (unsigned long)bytes > library->src->bytes_in_buffer)
    source_fill(library);
  if (bytes > 0) {
    library->src->next_input_byte += bytes;
    library->src->bytes_in_buffer -= (size_t)bytes;
  }
}

static void source_end(j_decompress_ptr library) {
  (void)library;
}

static void decoder_init(struct decoder *decoder, const void *bytes, size_t size) {
  struct jpeg_decompress_struct *library = &decoder->library;
  library->err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = on_error;
  decoder->errors.emit_message = on_message;
  decoder->errors.output_message = NULL; /* on_error formats, nothing else is written */
  library->client_data = decoder;
  jpeg_create_decompress(library);
  library->client_data = decoder;
  library->mem->max_memory_to_use = LIBRARY_BYTES_MAX;
  decoder->progress.progress_monitor = on_progress;
  library->progress = &decoder->progress;
  decoder->source = (struct jpeg_source_mgr){.next_input_byte = bytes,
                                             .bytes_in_buffer = size,
                                             .init_source = source_begin,
                                             .fill_input_buffer = source_fill,
                                             .skip_input_data = source_skip,
                                             .resync_to_restart = jpeg_resync_to_restart,
                                             .term_source = source_end};
  library->src = &decoder->source;
}

/* A product of two bytes over 255, rounded. */
static unsigned multiply_255(unsigned a, unsigned b) {
  unsigned product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/* Pillow takes all files of four colours for inverted, as Adobe writes them. cmyk u8[n, 4] -> rgb u8[n, 3] */
static void cmyk_to_rgb(const uint8_t *cmyk, int64_t n, uint8_t *rgb) {
  for (int64_t i = 0; i < n; i++)
    for (int c = 0; c < 3; c++) {
      int value = cmyk[4 * i + 3] - (int)multiply_255(255u - cmyk[4 * i + c], cmyk[4 * i + 3]);
      rgb[3 * i + c] = (uint8_t)(value < 0 ? 0 : value);
    }
}

static void jpeg_decode(struct decoder *decoder, struct scratch *scratch, struct image_shape *shape) {
  struct jpeg_decompress_struct *library = &decoder->library;
  bool is_cmyk, is_gray;
  uint8_t *row, *ink = NULL;
  jpeg_read_header(library, TRUE);
  is_cmyk = library->num_components == CMYK_CHANNELS;
  is_gray = library->jpeg_color_space == JCS_GRAYSCALE;
  *shape = (struct image_shape){is_gray ? 1 : 3, library->image_height, library->image_width};
  if (image_check_size(shape, decoder->err))
    longjmp(decoder->failed, 1);
  if ((size_t)(shape->height * shape->width) / PIXELS_PER_BYTE_MAX > decoder->size)
    jpeg_fail(decoder, ERR_CORRUPT,
              "is a JPEG that was cut short: it cannot hold the pixels that it announces");
  row = image_pixels(scratch, shape, decoder->err);
  if (row && is_cmyk && !(ink = scratch_get(scratch, SCRATCH_ROWS, (size_t)shape->width * CMYK_CHANNELS)))
    err_set(decoder->err, ERR_NO_MEMORY, "no memory for a row of pixels");
  if (decoder->err->code)
    longjmp(decoder->failed, 1);
  library->out_color_space = is_cmyk ? JCS_CMYK : is_gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(library);
  while (library->output_scanline < library->output_height) {
    uint8_t *to = is_cmyk ? ink : row;
    if (jpeg_read_scanlines(library, &to, 1) != 1)
      jpeg_fail(decoder, ERR_CORRUPT, "is a JPEG that was cut short");
    if (is_cmyk)
      cmyk_to_rgb(ink, shape->width, row);
    row += shape->width * shape->channels;
  }
}

int image_decode_jpeg(const void *bytes, size_t size, struct scratch *scratch, struct image_shape *shape,
                      struct err *err) {
  struct decoder decoder = {.size = size, .err = err};
  err->code = ERR_OK;
  if (setjmp(decoder.failed) == 0) {
    decoder_init(&decoder, bytes, size);
    jpeg_decode(&decoder, scratch, shape);
  }
  jpeg_destroy_decompress(&decoder.library);
  return err->code;
}

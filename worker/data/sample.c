/* Samples: views, and turning them into dense f32. */
#include "worker/data/sample.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

void *scratch_get(struct scratch *scratch, enum scratch_area area, size_t size_bytes) {
  size_t wanted;
  if (scratch->data[area] && size_bytes <= scratch->size_bytes[area])
    return scratch->data[area];
  free(scratch->data[area]);
  scratch->data[area] = NULL;
  scratch->size_bytes[area] = 0;
  if (size_bytes > SIZE_MAX / 2)
    return NULL;
  wanted =
      (size_bytes + size_bytes / 4) / ALIGNMENT * ALIGNMENT + ALIGNMENT; /* the next may be a bit larger */
  scratch->data[area] = aligned_alloc(ALIGNMENT, wanted);
  if (scratch->data[area])
    scratch->size_bytes[area] = wanted;
  return scratch->data[area];
}

void scratch_fini(struct scratch *scratch) {
  for (int i = 0; i < SCRATCH_AREAS; i++)
    free(scratch->data[i]);
  *scratch = (struct scratch){0};
}

static int64_t shape_total(const struct image_shape *shape) {
  return shape->channels * shape->height * shape->width;
}

void sample_set_dense(struct sample *sample, struct image_shape shape, enum dtype dtype, const void *data) {
  sample->shape = shape;
  sample->dtype = dtype;
  sample->data = data;
  sample->channel_step = shape.height * shape.width;
  sample->row_step = shape.width;
  sample->pixel_step = 1;
  sample->values = NULL;
}

/* Whether its elements lie in that memory, at its beginning or (mirrored, cut) within. */
static bool lies_in(const struct sample *sample, const void *memory, size_t size_bytes) {
  return (uintptr_t)sample->data - (uintptr_t)memory < size_bytes;
}

float *sample_renew(struct sample *sample, struct image_shape shape) {
  struct scratch *scratch = sample->scratch;
  int64_t elems = shape_total(&shape);
  enum scratch_area area = lies_in(sample, scratch->data[SCRATCH_FLOATS], scratch->size_bytes[SCRATCH_FLOATS])
                               ? SCRATCH_MORE_FLOATS
                               : SCRATCH_FLOATS;
  float *data = sample->out;
  if (elems > sample->out_elems || lies_in(sample, data, (size_t)sample->out_elems * sizeof *data))
    data = scratch_get(scratch, area, (size_t)elems * sizeof *data);
  if (data)
    sample_set_dense(sample, shape, DTYPE_F32, data);
  return data;
}

static bool is_own_dense(const struct sample *sample) {
  const struct scratch *scratch = sample->scratch;
  bool is_dense = sample->dtype == DTYPE_F32 && sample->pixel_step == 1 &&
                  sample->row_step == sample->shape.width &&
                  sample->channel_step == sample->shape.width * sample->shape.height;
  return is_dense && (sample->data == sample->out || sample->data == scratch->data[SCRATCH_FLOATS] ||
                      sample->data == scratch->data[SCRATCH_MORE_FLOATS]);
}

float *sample_floats(struct sample *sample) {
  struct sample view = *sample;
  float *data;
  if (is_own_dense(sample))
    return (float *)(uintptr_t)sample->data;
  data = sample_renew(sample, sample->shape);
  if (data)
    sample_write(&view, data);
  return data;
}

static void write_bytes(const uint8_t *row, int64_t step, const float *values, int64_t width, float *out) {
  if (values)
    for (int64_t x = 0; x < width; x++)
      out[x] = values[row[x * step]];
  else if (step == 1)
    for (int64_t x = 0; x < width; x++)
      out[x] = row[x];
  else
    for (int64_t x = 0; x < width; x++)
      out[x] = row[x * step];
}

static void write_floats(const char *row, int64_t step, int64_t width, float *out) {
  if (step == 1)
    memmove(out, row, (size_t)width * sizeof *out);
  else
    for (int64_t x = 0; x < width; x++)
      memcpy(&out[x], row + x * step * (int64_t)sizeof *out, sizeof *out);
}

void sample_write(const struct sample *sample, float *out) {
  struct image_shape shape = sample->shape;
  if (sample->data == out)
    return;
  if (sample->pixel_step == 1 && sample->row_step == shape.width) { /* rows that follow each other are one */
    shape.width *= shape.height;
    shape.height = 1;
  }
  for (int64_t c = 0; c < shape.channels; c++)
    for (int64_t y = 0; y < shape.height; y++, out += shape.width) {
      int64_t begin = c * sample->channel_step + y * sample->row_step;
      const float *values = sample->values ? sample->values + c * BYTE_VALUES : NULL;
      if (sample->dtype == DTYPE_U8)
        write_bytes((const uint8_t *)sample->data + begin, sample->pixel_step, values, shape.width, out);
      else
        write_floats((const char *)sample->data + begin * (int64_t)sizeof *out, sample->pixel_step,
                     shape.width, out);
    }
}

void sample_cut(struct sample *sample, int64_t top, int64_t left, int64_t height, int64_t width) {
  int64_t skipped = top * sample->row_step + left * sample->pixel_step;
  sample->data = (const char *)sample->data + skipped * (int64_t)dtype_size(sample->dtype);
  sample->shape.height = height;
  sample->shape.width = width;
}

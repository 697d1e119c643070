/* A sample on its way from a column through the transforms to a graph input: a view of channels, rows and
   pixels, so that cutting and mirroring move no byte. */
#ifndef WEIR_WORKER_DATA_SAMPLE_H
#define WEIR_WORKER_DATA_SAMPLE_H

#include "model/graph/graph.h"

/* The places in which samples are made, grown as needed and kept for the next sample. */
enum scratch_area {
  SCRATCH_FILE,    /* a file's bytes */
  SCRATCH_PIXELS,  /* what a decoder makes of them */
  SCRATCH_ROWS,    /* what a decoder or a transform needs besides */
  SCRATCH_WEIGHTS, /* likewise */
  SCRATCH_BORDERS, /* bytes with a border around them */
  SCRATCH_TABLES,  /* what transforms make of each byte value */
  SCRATCH_FLOATS,  /* results of transforms, in turn */
  SCRATCH_MORE_FLOATS,
  SCRATCH_AREAS
};

/* One thread at a time. Zeroed: empty. */
struct scratch {
  void *data[SCRATCH_AREAS];
  size_t size_bytes[SCRATCH_AREAS];
};

/* At least that many bytes, 64-byte aligned, not set; what the area held is lost when it grows. NULL: out of
   memory. */
void *scratch_get(struct scratch *scratch, enum scratch_area area, size_t size_bytes);
void scratch_fini(struct scratch *scratch);

/* The shape of a sample as transforms see it. -1: height or width differ from sample to sample. */
struct image_shape {
  int64_t channels, height, width;
};

enum { BYTE_VALUES = 256 };

struct sample {
  struct image_shape shape; /* of this sample: nothing in it is -1 */
  enum dtype dtype;         /* U8 or F32 */
  const void *data;         /* at any alignment; element [c, y, x] lies c * channel_step + ... behind it */
  int64_t channel_step, row_step, pixel_step; /* any sign */
  const float *values; /* U8: f32[channels, BYTE_VALUES], what each byte stands for; NULL: its number */
  struct scratch *scratch;
  float *out; /* f32[out_elems]: where the result is wanted, which saves a copy where it is made there */
  int64_t out_elems;
};

/* A dense sample of that shape at `data`. */
void sample_set_dense(struct sample *sample, struct image_shape shape, enum dtype dtype, const void *data);

/* Makes the sample a dense f32[shape] that is not set yet, and returns its elements to be written. Its former
   elements, to be read by a copy of the struct made before, stay until the next call. NULL: out of memory. */
float *sample_renew(struct sample *sample, struct image_shape shape);

/* The sample's elements as dense f32[channels, height, width] of its own, to be changed in place: the view is
   resolved if need be. NULL: out of memory. */
float *sample_floats(struct sample *sample);

/* Writes the view as dense f32[channels, height, width]; Its elements lie elsewhere, or dense right
   there. */
void sample_write(const struct sample *sample, float *out);

/* Narrows the view to [top, top + height) x [left, left + width), which lies within it. */
void sample_cut(struct sample *sample, int64_t top, int64_t left, int64_t height, int64_t width);

#endif

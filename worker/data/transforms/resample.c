/* Resampling: a triangle filter as wide as the scale, first down the columns, then along the rows, which have
   become fewer by then. Source: aten/native UpSample, _upsample_bilinear2d_aa: its weights and bounds. */
#include "worker/data/transforms/geometry.h"

#include <math.h>
#include <string.h>

#include "common/base/vector_variants.h"

/* What of `in` elements each of `out` is made of. */
struct taps {
  int64_t most;   /* of one of them */
  int64_t *begin; /* [out] */
  int64_t *count; /* [out] */
  float *weights; /* [out, most] */
};

static int64_t most_taps(int64_t in, int64_t out) {
  double scale = (double)in / (double)out;
  return (int64_t)ceil(scale > 1 ? scale : 1) * 2 + 1;
}

static size_t taps_bytes(int64_t in, int64_t out) {
  return (size_t)out * (2 * sizeof(int64_t) + (size_t)most_taps(in, out) * sizeof(float)) + sizeof(int64_t);
}

/* Lays them out in memory and fills them in; returns what comes behind. */
static char *taps_init(struct taps *taps, int64_t in, int64_t out, char *memory) {
  double scale = (double)in / (double)out, support = scale > 1 ? scale : 1;
  taps->most = most_taps(in, out);
  taps->begin = (int64_t *)memory;
  taps->count = taps->begin + out;
  taps->weights = (float *)(taps->count + out);
  for (int64_t i = 0; i < out; i++) {
    double center = scale * ((double)i + 0.5), sum = 0;
    int64_t begin = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
    float *weights = taps->weights + i * taps->most;
    begin = center - support + 0.5 < 0 ? 0 : begin;
    end = end < in ? end : in;
    end = end - begin < taps->most ? end : begin + taps->most;
    for (int64_t j = begin; j < end; j++) {
      double distance = fabs(((double)j - center + 0.5) / support), weight = distance < 1 ? 1 - distance : 0;
      weights[j - begin] = (float)weight;
      sum += weight;
    }
    for (int64_t j = begin; j < end; j++)
      weights[j - begin] = (float)((double)weights[j - begin] / sum);
    taps->begin[i] = begin;
    taps->count[i] = end - begin;
  }
  return (char *)memory + (taps_bytes(in, out) + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

/* Rows that are added with weights: row = sum of weights[t] * from[t * step + x] over t < count, x < n. */
struct row_sum {
  const float *weights;
  int64_t count, step, n;
};

VECTOR_VARIANTS
static void add_byte_rows(const uint8_t *from, const struct row_sum *sum, float *row) {
  const float *weights = sum->weights;
  int64_t count = sum->count, step = sum->step, n = sum->n;
  memset(row, 0, (size_t)n * sizeof *row);
  for (int64_t t = 0; t < count; t++)
    for (int64_t x = 0; x < n; x++)
      row[x] += weights[t] * (float)from[t * step + x];
}

VECTOR_VARIANTS
static void add_float_rows(const float *from, const struct row_sum *sum, float *row) {
  const float *weights = sum->weights;
  int64_t count = sum->count, step = sum->step, n = sum->n;
  memset(row, 0, (size_t)n * sizeof *row);
  for (int64_t t = 0; t < count; t++)
    for (int64_t x = 0; x < n; x++)
      row[x] += weights[t] * from[t * step + x];
}

/* out[x] of one channel. */
static void along_row(const float *row, const struct taps *taps, int64_t width, float *out) {
  for (int64_t x = 0; x < width; x++) {
    const float *from = row + taps->begin[x], *weights = taps->weights + x * taps->most;
    float sum = 0;
    for (int64_t t = 0; t < taps->count[x]; t++)
      sum += weights[t] * from[t];
    out[x] = sum;
  }
}

/* Three channels that take turns: four at a time, of which the last belongs to the next pixel. The row goes
   on for one element more. */
static void along_row_of_3(const float *row, const struct taps *taps, int64_t width, int64_t plane,
                           float *out) {
  typedef float vector __attribute__((vector_size(16)));
  for (int64_t x = 0; x < width; x++) {
    const float *from = row + taps->begin[x] * 3, *weights = taps->weights + x * taps->most;
    vector sum = {0}, pixel;
    for (int64_t t = 0; t < taps->count[x]; t++) {
      memcpy(&pixel, from + t * 3, sizeof pixel);
      sum += pixel * weights[t];
    }
    out[x] = sum[0];
    out[plane + x] = sum[1];
    out[2 * plane + x] = sum[2];
  }
}

/* Rows of bytes can be read where they are: one channel after the other, or three in turns. */
static bool has_plain_bytes(const struct sample *sample) {
  bool takes_turns = sample->pixel_step == 3 && sample->channel_step == 1 && sample->shape.channels == 3;
  return sample->dtype == DTYPE_U8 && !sample->values && (sample->pixel_step == 1 || takes_turns);
}

struct resampling {
  struct taps down, along;
  float *row; /* f32[3 width + 1], between the two */
};

/* from: the whole sample, bytes as has_plain_bytes says or dense f32. */
static void sample_resample(const struct sample *from, const struct resampling *resampling,
                            struct image_shape shape, float *out) {
  const struct taps *down = &resampling->down, *along = &resampling->along;
  float *row = resampling->row;
  int64_t group = from->pixel_step, plane = shape.height * shape.width;
  for (int64_t p = 0; p < (group == 3 ? 1 : shape.channels); p++)
    for (int64_t y = 0; y < shape.height; y++) {
      int64_t begin = p * from->channel_step + down->begin[y] * from->row_step;
      struct row_sum sum = {.weights = down->weights + y * down->most,
                            .count = down->count[y],
                            .step = from->row_step,
                            .n = from->shape.width * group};
      float *to = out + p * plane + y * shape.width;
      if (from->dtype == DTYPE_U8)
        add_byte_rows((const uint8_t *)from->data + begin, &sum, row);
      else
        add_float_rows((const float *)from->data + begin, &sum, row);
      if (group == 3)
        along_row_of_3(row, along, shape.width, plane, to);
      else
        along_row(row, along, shape.width, to);
    }
}

int geometry_resize(struct sample *sample, int64_t height, int64_t width, struct err *err) {
  struct image_shape before = sample->shape, after = {before.channels, height, width};
  struct sample from;
  struct resampling resampling;
  char *memory;
  float *out;
  if (height == before.height && width == before.width)
    return 0;
  if (!has_plain_bytes(sample) && !sample_floats(sample))
    goto no_memory;
  from = *sample;
  memory = scratch_get(sample->scratch, SCRATCH_WEIGHTS,
                       taps_bytes(before.height, height) + taps_bytes(before.width, width));
  resampling.row =
      scratch_get(sample->scratch, SCRATCH_ROWS, (size_t)(before.width * 3 + 1) * sizeof *resampling.row);
  out = memory && resampling.row ? sample_renew(sample, after) : NULL;
  if (!out)
    goto no_memory;
  memory = taps_init(&resampling.down, before.height, height, memory);
  taps_init(&resampling.along, before.width, width, memory);
  resampling.row[before.width * 3] = 0;
  sample_resample(&from, &resampling, after, out);
  return 0;
no_memory:
  return err_set(err, ERR_NO_MEMORY, "no memory to resize %lld x %lld to %lld x %lld pixels",
                 (long long)before.height, (long long)before.width, (long long)height, (long long)width);
}

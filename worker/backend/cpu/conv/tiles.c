/* The transforms of F(2x2, 3x3), of a block of channels at a time. */
#include "worker/backend/cpu/conv/tiles.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "worker/backend/cpu/reals.h"

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#define HAS_HALF_VARIANT
/* CPUs that compute in bf16 have the instructions that round to it. */
#define HALF_VARIANT __attribute__((target("arch=x86-64-v4,avx512bf16")))
#else
#define HALF_VARIANT
#endif

enum { WINDOW = 4, KERNEL = 3 };

typedef float vec __attribute__((vector_size(TILE_BLOCK * sizeof(float))));

HALF_VARIANT static INLINED void vec_read(const uint16_t *from, vec *to) {
#ifdef HAS_HALF_VARIANT
  __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)from));
  *to = (vec)_mm512_slli_epi32(bits, 16);
#else
  for (int l = 0; l < TILE_BLOCK; l++)
    (*to)[l] = real_of_bf16(from[l]);
#endif
}

/* The bits of bf16_of_real, of what is not subnormal. */
HALF_VARIANT static INLINED void vec_round(const vec *from, uint16_t *to) {
#ifdef HAS_HALF_VARIANT
  __m256bh half = _mm512_cvtneps_pbh((__m512)*from);
  memcpy(to, &half, sizeof half);
#else
  for (int l = 0; l < TILE_BLOCK; l++)
    to[l] = bf16_of_real((*from)[l]);
#endif
}

/* Where a tile is. */
struct place {
  int64_t sample, row, column;
};

static struct place place_of(const struct tiles *tiles, int64_t tile) {
  return (struct place){tile / (tiles->rows * tiles->columns), tile / tiles->columns % tiles->rows,
                        tile % tiles->columns};
}

static void place_next(const struct tiles *tiles, struct place *at) {
  if (++at->column < tiles->columns)
    return;
  at->column = 0;
  if (++at->row < tiles->rows)
    return;
  at->row = 0;
  at->sample++;
}

/* The block's image of a sample. */
static INLINED int64_t plane_at(const struct tiles *tiles, int64_t sample, int64_t block) {
  return (sample * (tiles->channels / TILE_BLOCK) + block) * tiles->height * tiles->width * TILE_BLOCK;
}

/* out = B' in, for one row or column. */
static INLINED void window_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a - c;
  out[out_step] = b + c;
  out[2 * out_step] = c - b;
  out[3 * out_step] = b - d;
}

/* The window that begins at (row, column) of a plane. */
HALF_VARIANT static INLINED void window_read(const struct tiles *tiles, const uint16_t *plane, int64_t row,
                                             int64_t column, vec window[WINDOW * WINDOW]) {
  bool is_inside =
      row >= 0 && column >= 0 && row + WINDOW <= tiles->height && column + WINDOW <= tiles->width;
  for (int64_t i = 0; i < WINDOW; i++)
    for (int64_t j = 0; j < WINDOW; j++) {
      int64_t r = row + i, c = column + j;
      if (is_inside || (r >= 0 && r < tiles->height && c >= 0 && c < tiles->width))
        vec_read(plane + (r * tiles->width + c) * TILE_BLOCK, &window[i * WINDOW + j]);
      else
        memset(&window[i * WINDOW + j], 0, sizeof window[0]);
    }
}

/* The parts of two blocks side by side fill lines of the cache. Where they go, the parts of one block are far
   from each other, often by a power of two, so that the cache keeps few of them at a time: a line is written
   at once. */
struct parts {
  _Alignas(64) uint16_t at[TILE_PARTS][2 * TILE_BLOCK];
};

HALF_VARIANT static INLINED void parts_round(const vec parts[TILE_PARTS], struct parts *to, int block) {
  for (int p = 0; p < TILE_PARTS; p++)
    vec_round(&parts[p], to->at[p] + block * TILE_BLOCK);
}

static INLINED void parts_write(const struct parts *parts, int n_blocks, uint16_t *to, int64_t step) {
  for (int p = 0; p < TILE_PARTS; p++)
    if (n_blocks == 2)
      memcpy(to + p * step, parts->at[p], sizeof parts->at[p]);
    else
      memcpy(to + p * step, parts->at[p], sizeof parts->at[p] / 2);
}

static INLINED int blocks_from(int64_t channel, int64_t channels) {
  return channel + TILE_BLOCK < channels ? 2 : 1;
}

HALF_VARIANT static INLINED void window_take(const struct tiles *tiles, const struct place *at,
                                             const uint16_t *plane, struct parts *to, int block) {
  vec window[WINDOW * WINDOW], lines[WINDOW * WINDOW], parts[TILE_PARTS];
  window_read(tiles, plane, TILE_SIDE * at->row - tiles->pad[0], TILE_SIDE * at->column - tiles->pad[1],
              window);
  for (int i = 0; i < WINDOW; i++)
    window_line(window + WINDOW * i, 1, lines + WINDOW * i, 1);
  for (int j = 0; j < WINDOW; j++)
    window_line(lines + j, WINDOW, parts + j, WINDOW);
  parts_round(parts, to, block);
}

HALF_VARIANT void tiles_take(const struct tiles *tiles, struct tile_range range, const uint16_t *image,
                             uint16_t *v) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t c = 0; c < tiles->channels; c += 2 * TILE_BLOCK) {
      int n = blocks_from(c, tiles->channels);
      struct parts parts;
      for (int b = 0; b < n; b++)
        window_take(tiles, &at, image + plane_at(tiles, at.sample, c / TILE_BLOCK + b), &parts, b);
      parts_write(&parts, n, v + t * tiles->channels + c, range.n * tiles->channels);
    }
}

/* out = A' in, for one row or column. */
static INLINED void tile_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a + b + c;
  out[out_step] = b - c - d;
}

HALF_VARIANT void tiles_put(const struct tiles *tiles, struct tile_range range, const float *m,
                            const float *bias, uint16_t *image) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t b = 0; b * TILE_BLOCK < tiles->channels; b++) {
      const float *from = m + t * tiles->channels + b * TILE_BLOCK;
      uint16_t *plane = image + plane_at(tiles, at.sample, b);
      vec parts[TILE_PARTS], lines[WINDOW * TILE_SIDE], tile[TILE_SIDE * TILE_SIDE], shift = {0};
      for (int p = 0; p < TILE_PARTS; p++)
        memcpy(&parts[p], from + p * range.n * tiles->channels, sizeof parts[p]);
      for (int i = 0; i < WINDOW; i++)
        tile_line(parts + WINDOW * i, 1, lines + TILE_SIDE * i, 1);
      for (int j = 0; j < TILE_SIDE; j++)
        tile_line(lines + j, TILE_SIDE, tile + j, TILE_SIDE);
      if (bias)
        memcpy(&shift, bias + b * TILE_BLOCK, sizeof shift);
      for (int e = 0; e < TILE_SIDE * TILE_SIDE; e++) {
        int64_t r = TILE_SIDE * at.row + e / TILE_SIDE, c = TILE_SIDE * at.column + e % TILE_SIDE;
        tile[e] += shift;
        if (r < tiles->height && c < tiles->width)
          vec_round(&tile[e], plane + (r * tiles->width + c) * TILE_BLOCK);
      }
    }
}

/* out = A in, for one row or column. */
static INLINED void spread_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step];
  out[0] = a;
  out[out_step] = a + b;
  out[2 * out_step] = a - b;
  out[3 * out_step] = -b;
}

HALF_VARIANT static INLINED void tile_spread(const struct tiles *tiles, const struct place *at,
                                             const uint16_t *plane, struct parts *to, int block) {
  vec tile[TILE_SIDE * TILE_SIDE], lines[TILE_SIDE * WINDOW], parts[TILE_PARTS];
  for (int e = 0; e < TILE_SIDE * TILE_SIDE; e++) {
    int64_t r = TILE_SIDE * at->row + e / TILE_SIDE, c = TILE_SIDE * at->column + e % TILE_SIDE;
    if (r < tiles->height && c < tiles->width)
      vec_read(plane + (r * tiles->width + c) * TILE_BLOCK, &tile[e]);
    else
      memset(&tile[e], 0, sizeof tile[e]);
  }
  for (int i = 0; i < TILE_SIDE; i++)
    spread_line(tile + TILE_SIDE * i, 1, lines + WINDOW * i, 1);
  for (int j = 0; j < WINDOW; j++)
    spread_line(lines + j, WINDOW, parts + j, WINDOW);
  parts_round(parts, to, block);
}

HALF_VARIANT void tiles_spread(const struct tiles *tiles, struct tile_range range, const uint16_t *image,
                               uint16_t *w) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t c = 0; c < tiles->channels; c += 2 * TILE_BLOCK) {
      int n = blocks_from(c, tiles->channels);
      struct parts parts;
      for (int b = 0; b < n; b++)
        tile_spread(tiles, &at, image + plane_at(tiles, at.sample, c / TILE_BLOCK + b), &parts, b);
      parts_write(&parts, n, w + t * tiles->channels + c, range.n * tiles->channels);
    }
}

/* out = G in, for one row or column. */
static INLINED void kernel_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], outer = (a + c) * 0.5f, half = b * 0.5f;
  out[0] = a;
  out[out_step] = outer + half;
  out[2 * out_step] = outer - half;
  out[3 * out_step] = c;
}

/* taps[TILE_TAPS]: a block of kernels. */
HALF_VARIANT static INLINED void kernels_transform(const vec *taps, struct parts *to, int block) {
  vec lines[KERNEL * WINDOW], parts[TILE_PARTS];
  for (int i = 0; i < KERNEL; i++)
    kernel_line(taps + KERNEL * i, 1, lines + WINDOW * i, 1);
  for (int j = 0; j < WINDOW; j++)
    kernel_line(lines + j, WINDOW, parts + j, WINDOW);
  parts_round(parts, to, block);
}

typedef int32_t lanes __attribute__((vector_size(TILE_BLOCK * sizeof(int32_t))));

/* Rows become columns: each of four turns interleaves the upper half of the rows with the lower half. */
HALF_VARIANT static INLINED void transpose(vec rows[TILE_BLOCK]) {
  const lanes low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}, high = low + 8;
  for (int turn = 1; turn < TILE_BLOCK; turn *= 2) {
    vec turned[TILE_BLOCK];
    for (int r = 0; r < TILE_BLOCK / 2; r++) {
      turned[2 * r] = __builtin_shuffle(rows[r], rows[r + TILE_BLOCK / 2], low);
      turned[2 * r + 1] = __builtin_shuffle(rows[r], rows[r + TILE_BLOCK / 2], high);
    }
    memcpy(rows, turned, sizeof turned);
  }
}

/* A kernel has fewer elements than a vector, so vectors reach into the next kernels: the last ones have none.
 */
static INLINED size_t row_bytes(const struct kernels *kernels, int64_t kernel) {
  bool is_near_end =
      (kernel + 1) * TILE_TAPS + TILE_BLOCK - TILE_TAPS > kernels->out * kernels->in * TILE_TAPS;
  return (is_near_end ? TILE_TAPS : TILE_BLOCK) * sizeof(float);
}

/* A block of kernels, `step` apart from kernel number `first` on: rows[t] are their elements t. */
HALF_VARIANT static INLINED void kernels_read(const struct kernels *kernels, const float *weights,
                                              int64_t first, int64_t step, vec rows[TILE_BLOCK]) {
  for (int l = 0; l < TILE_BLOCK; l++) {
    int64_t kernel = first + l * step;
    rows[l] = (vec){0};
    if (row_bytes(kernels, kernel) == sizeof rows[l])
      memcpy(&rows[l], weights + kernel * TILE_TAPS, sizeof rows[l]);
    else
      memcpy(&rows[l], weights + kernel * TILE_TAPS, TILE_TAPS * sizeof(float));
  }
  transpose(rows);
}

HALF_VARIANT void kernels_take(const struct kernels *kernels, const float *weights, uint16_t *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o += 2 * TILE_BLOCK)
    for (int64_t i = 0; i < in; i++) {
      int n = blocks_from(o, out);
      struct parts parts;
      for (int b = 0; b < n; b++) {
        vec rows[TILE_BLOCK];
        kernels_read(kernels, weights, (o + b * TILE_BLOCK) * in + i, in, rows);
        kernels_transform(rows, &parts, b);
      }
      parts_write(&parts, n, u + i * out + o, in * out);
    }
}

HALF_VARIANT void kernels_take_turned(const struct kernels *kernels, const float *weights, uint16_t *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i += 2 * TILE_BLOCK) {
      int n = blocks_from(i, in);
      struct parts parts;
      for (int b = 0; b < n; b++) {
        vec rows[TILE_BLOCK], turned[TILE_TAPS];
        kernels_read(kernels, weights, o * in + i + b * TILE_BLOCK, 1, rows);
        for (int t = 0; t < TILE_TAPS; t++)
          turned[t] = rows[TILE_TAPS - 1 - t];
        kernels_transform(turned, &parts, b);
      }
      parts_write(&parts, n, u + o * in + i, in * out);
    }
}

/* out = G' in, for one row or column. */
static INLINED void gradient_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step], outer = (b + c) * 0.5f;
  out[0] = a + outer;
  out[out_step] = (b - c) * 0.5f;
  out[2 * out_step] = outer + d;
}

/* What reaches into the next kernels is written over when they are. */
HALF_VARIANT void kernels_put(const struct kernels *kernels, const float *s, float *gradient) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i += TILE_BLOCK) {
      vec parts[TILE_PARTS], lines[WINDOW * KERNEL], rows[TILE_BLOCK] = {{0}};
      for (int p = 0; p < TILE_PARTS; p++)
        memcpy(&parts[p], s + (p * out + o) * in + i, sizeof parts[p]);
      for (int r = 0; r < WINDOW; r++)
        gradient_line(parts + WINDOW * r, 1, lines + KERNEL * r, 1);
      for (int c = 0; c < KERNEL; c++)
        gradient_line(lines + c, KERNEL, rows + c, KERNEL);
      transpose(rows);
      for (int l = 0; l < TILE_BLOCK; l++) {
        int64_t kernel = o * in + i + l;
        memcpy(gradient + kernel * TILE_TAPS, &rows[l], row_bytes(kernels, kernel));
      }
    }
}

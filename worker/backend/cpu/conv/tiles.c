/* The transforms of F(2x2, 3x3), of one or two blocks of channels at a time. */
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

/* Of two blocks side by side. */
HALF_VARIANT static INLINED void vec_round_pair(const vec *low, const vec *high, uint16_t *to) {
#ifdef HAS_HALF_VARIANT
  __m512bh halves = _mm512_cvtne2ps_pbh((__m512)*high, (__m512)*low);
  memcpy(to, &halves, sizeof halves);
#else
  vec_round(low, to);
  vec_round(high, to + TILE_BLOCK);
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

/* A block's image of a sample. */
static INLINED int64_t plane_elems(const struct tiles *tiles) {
  return tiles->height * tiles->width * TILE_BLOCK;
}

static INLINED int64_t plane_at(const struct tiles *tiles, int64_t sample, int64_t block) {
  return (sample * (tiles->channels / TILE_BLOCK) + block) * plane_elems(tiles);
}

/* A row of a tile's parts, of one block or of two: those of two fill lines of the cache, which are written at
   once. */
HALF_VARIANT static INLINED void parts_write(const vec parts[][WINDOW], int n_blocks, uint16_t *to,
                                             int64_t channels) {
  for (int j = 0; j < WINDOW; j++)
    if (n_blocks == 2)
      vec_round_pair(&parts[0][j], &parts[1][j], to + j * channels);
    else
      vec_round(&parts[0][j], to + j * channels);
}

static INLINED int blocks_from(int64_t channel, int64_t channels) {
  return channel + TILE_BLOCK < channels ? 2 : 1;
}

/* out = B' in, for one row or column. */
static INLINED void window_line(const vec *in, ptrdiff_t step, vec *out, ptrdiff_t out_step) {
  vec a = in[0], b = in[step], c = in[2 * step], d = in[3 * step];
  out[0] = a - c;
  out[out_step] = b + c;
  out[2 * out_step] = c - b;
  out[3 * out_step] = b - d;
}

/* Four elements of a plane's column, from (row, column) on, transformed. */
HALF_VARIANT static INLINED void column_take(const struct tiles *tiles, const uint16_t *plane, int64_t row,
                                             int64_t column, vec to[WINDOW]) {
  vec from[WINDOW];
  bool is_inside = column >= 0 && column < tiles->width;
  for (int i = 0; i < WINDOW; i++)
    if (is_inside && row + i >= 0 && row + i < tiles->height)
      vec_read(plane + ((row + i) * tiles->width + column) * TILE_BLOCK, &from[i]);
    else
      from[i] = (vec){0};
  window_line(from, 1, to, 1);
}

/* One block of a sample, or two side by side. The compiler makes a variant of what is done for each number.
 */
struct blocks {
  const struct tiles *tiles;
  const uint16_t *planes;
  int n;
};

/* Two columns of a window, of each block. */
typedef vec column_pair[2][2][WINDOW];

HALF_VARIANT static INLINED void pair_take(const struct blocks *blocks, int64_t row, int64_t column,
                                           column_pair to) {
  const struct tiles *tiles = blocks->tiles;
  for (int j = 0; j < 2; j++)
    for (int b = 0; b < blocks->n; b++)
      column_take(tiles, blocks->planes + b * plane_elems(tiles), row, column + j, to[j][b]);
}

/* The windows of `n` tiles side by side, the first of them at `at`. Each shares a pair of columns with the
   one before it. */
HALF_VARIANT static INLINED void windows_take(const struct blocks *blocks, const struct place *at, int64_t n,
                                              uint16_t *to) {
  const struct tiles *tiles = blocks->tiles;
  int64_t row = TILE_SIDE * at->row - tiles->pad[0], column = TILE_SIDE * at->column - tiles->pad[1];
  column_pair pairs[2];
  vec parts[2][WINDOW];
  pair_take(blocks, row, column, pairs[0]);
  for (int64_t t = 0; t < n; t++, to += TILE_PARTS * tiles->channels) {
    vec(*left)[2][WINDOW] = pairs[t % 2], (*right)[2][WINDOW] = pairs[1 - t % 2];
    column += TILE_SIDE;
    pair_take(blocks, row, column, right);
    for (int i = 0; i < WINDOW; i++) {
      for (int b = 0; b < blocks->n; b++) {
        const vec line[WINDOW] = {left[0][b][i], left[1][b][i], right[0][b][i], right[1][b][i]};
        window_line(line, 1, parts[b], 1);
      }
      parts_write(parts, blocks->n, to + i * WINDOW * tiles->channels, tiles->channels);
    }
  }
}

HALF_VARIANT void tiles_take(const struct tiles *tiles, struct tile_range range, const uint16_t *image,
                             uint16_t *v) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0, n; t < range.n; t += n) {
    n = tiles->columns - at.column < range.n - t ? tiles->columns - at.column : range.n - t;
    for (int64_t c = 0; c < tiles->channels; c += 2 * TILE_BLOCK) {
      const uint16_t *planes = image + plane_at(tiles, at.sample, c / TILE_BLOCK);
      uint16_t *to = v + TILE_PARTS * t * tiles->channels + c;
      if (blocks_from(c, tiles->channels) == 2)
        windows_take(&(struct blocks){tiles, planes, 2}, &at, n, to);
      else
        windows_take(&(struct blocks){tiles, planes, 1}, &at, n, to);
    }
    at.column += n - 1;
    place_next(tiles, &at);
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
      const float *from = m + TILE_PARTS * t * tiles->channels + b * TILE_BLOCK;
      uint16_t *plane = image + plane_at(tiles, at.sample, b);
      vec parts[TILE_PARTS], lines[WINDOW * TILE_SIDE], tile[TILE_SIDE * TILE_SIDE], shift = {0};
      for (int p = 0; p < TILE_PARTS; p++)
        memcpy(&parts[p], from + p * tiles->channels, sizeof parts[p]);
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

HALF_VARIANT static INLINED void tile_read(const struct tiles *tiles, const struct place *at,
                                           const uint16_t *plane, vec tile[TILE_SIDE * TILE_SIDE]) {
  for (int e = 0; e < TILE_SIDE * TILE_SIDE; e++) {
    int64_t r = TILE_SIDE * at->row + e / TILE_SIDE, c = TILE_SIDE * at->column + e % TILE_SIDE;
    if (r < tiles->height && c < tiles->width)
      vec_read(plane + (r * tiles->width + c) * TILE_BLOCK, &tile[e]);
    else
      tile[e] = (vec){0};
  }
}

HALF_VARIANT static INLINED void tile_spread(const struct blocks *blocks, const struct place *at,
                                             uint16_t *to) {
  const struct tiles *tiles = blocks->tiles;
  vec lines[2][WINDOW][TILE_SIDE], parts[2][WINDOW];
  for (int b = 0; b < blocks->n; b++) {
    vec tile[TILE_SIDE * TILE_SIDE];
    tile_read(tiles, at, blocks->planes + b * plane_elems(tiles), tile);
    for (int j = 0; j < TILE_SIDE; j++)
      spread_line(tile + j, TILE_SIDE, &lines[b][0][j], TILE_SIDE);
  }
  for (int i = 0; i < WINDOW; i++) {
    for (int b = 0; b < blocks->n; b++)
      spread_line(lines[b][i], 1, parts[b], 1);
    parts_write(parts, blocks->n, to + i * WINDOW * tiles->channels, tiles->channels);
  }
}

HALF_VARIANT void tiles_spread(const struct tiles *tiles, struct tile_range range, const uint16_t *image,
                               uint16_t *w) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t c = 0; c < tiles->channels; c += 2 * TILE_BLOCK) {
      const uint16_t *planes = image + plane_at(tiles, at.sample, c / TILE_BLOCK);
      uint16_t *to = w + TILE_PARTS * t * tiles->channels + c;
      if (blocks_from(c, tiles->channels) == 2)
        tile_spread(&(struct blocks){tiles, planes, 2}, &at, to);
      else
        tile_spread(&(struct blocks){tiles, planes, 1}, &at, to);
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

/* taps[n_blocks][TILE_TAPS] */
HALF_VARIANT static INLINED void kernels_transform(const vec taps[][TILE_TAPS], int n_blocks, uint16_t *to,
                                                   int64_t channels) {
  vec lines[2][WINDOW][KERNEL], parts[2][WINDOW];
  for (int b = 0; b < n_blocks; b++)
    for (int j = 0; j < KERNEL; j++)
      kernel_line(taps[b] + j, KERNEL, &lines[b][0][j], KERNEL);
  for (int i = 0; i < WINDOW; i++) {
    for (int b = 0; b < n_blocks; b++)
      kernel_line(lines[b][i], 1, parts[b], 1);
    parts_write(parts, n_blocks, to + i * WINDOW * channels, channels);
  }
}

/* Rows become columns: each of four turns interleaves the upper half of the rows with the lower half. */
HALF_VARIANT static INLINED void transpose(vec rows[TILE_BLOCK]) {
  for (int turn = 1; turn < TILE_BLOCK; turn *= 2) {
    vec turned[TILE_BLOCK];
    for (int r = 0; r < TILE_BLOCK / 2; r++) {
      vec a = rows[r], b = rows[r + TILE_BLOCK / 2];
      turned[2 * r] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      turned[2 * r + 1] =
          __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
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

/* A block of kernels, `step` apart from kernel number `first` on: taps[t] are their elements t. */
HALF_VARIANT static INLINED void kernels_read(const struct kernels *kernels, const float *weights,
                                              int64_t first, int64_t step, vec taps[TILE_TAPS]) {
  vec rows[TILE_BLOCK];
  for (int l = 0; l < TILE_BLOCK; l++) {
    int64_t kernel = first + l * step;
    rows[l] = (vec){0};
    if (row_bytes(kernels, kernel) == sizeof rows[l])
      memcpy(&rows[l], weights + kernel * TILE_TAPS, sizeof rows[l]);
    else
      memcpy(&rows[l], weights + kernel * TILE_TAPS, TILE_TAPS * sizeof(float));
  }
  transpose(rows);
  memcpy(taps, rows, TILE_TAPS * sizeof *taps);
}

static INLINED void kernels_turn(vec taps[TILE_TAPS]) {
  for (int t = 0; t < TILE_TAPS / 2; t++) {
    vec tap = taps[t];
    taps[t] = taps[TILE_TAPS - 1 - t];
    taps[TILE_TAPS - 1 - t] = tap;
  }
}

/* A block of inputs at a time, whose weights lie side by side. */
HALF_VARIANT void kernels_take(const struct kernels *kernels, const float *weights, uint16_t *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t first = 0; first < in; first += TILE_BLOCK)
    for (int64_t o = 0; o < out; o += 2 * TILE_BLOCK)
      for (int64_t i = first; i < first + TILE_BLOCK; i++) {
        int n = blocks_from(o, out);
        vec taps[2][TILE_TAPS];
        for (int b = 0; b < n; b++)
          kernels_read(kernels, weights, (o + b * TILE_BLOCK) * in + i, in, taps[b]);
        kernels_transform(taps, n, u + TILE_PARTS * i * out + o, out);
      }
}

HALF_VARIANT void kernels_take_turned(const struct kernels *kernels, const float *weights, uint16_t *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i += 2 * TILE_BLOCK) {
      int n = blocks_from(i, in);
      vec taps[2][TILE_TAPS];
      for (int b = 0; b < n; b++) {
        kernels_read(kernels, weights, o * in + i + b * TILE_BLOCK, 1, taps[b]);
        kernels_turn(taps[b]);
      }
      kernels_transform(taps, n, u + TILE_PARTS * o * in + i, in);
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
        memcpy(&parts[p], s + (TILE_PARTS * o + p) * in + i, sizeof parts[p]);
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

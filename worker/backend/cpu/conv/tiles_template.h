/* The transforms (tiles.h) of one type of images, for the file that defines it: `real`; VARIANT, with which
   functions are compiled; BLOCKS, how many blocks of channels they take at a time; vec_read and
   blocks_write. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_TILES_TEMPLATE_H
#define WEIR_WORKER_BACKEND_CPU_CONV_TILES_TEMPLATE_H

#include <stdbool.h>
#include <string.h>

#include "worker/backend/cpu/conv/tile_lines.h"

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

static INLINED int parts_count(const int kernel) {
  return parts_side(kernel) * parts_side(kernel);
}

/* Blocks side by side of a sample. The compiler makes a variant of what is done for each number. */
struct blocks {
  const struct tiles *tiles;
  const real *planes;
  int n;
};

static INLINED int blocks_from(int64_t channel, int64_t channels) {
  return channel + TILE_BLOCK < channels ? BLOCKS : 1;
}

/* A row of a tile's parts, of each block. */
VARIANT static INLINED void parts_write(const int kernel, const vec parts[][SIDE_MAX], int n_blocks, real *to,
                                        int64_t channels) {
  for (int j = 0; j < parts_side(kernel); j++)
    blocks_write(&parts[0][j], &parts[n_blocks - 1][j], n_blocks, to + j * channels);
}

/* A window's column of each block, transformed. */
typedef vec window_column[BLOCKS][SIDE_MAX];

VARIANT static INLINED void column_take(const int kernel, const struct blocks *blocks, int64_t row,
                                        int64_t column, window_column to) {
  const struct tiles *tiles = blocks->tiles;
  bool is_inside = column >= 0 && column < tiles->width;
  for (int b = 0; b < blocks->n; b++) {
    const real *plane = blocks->planes + b * plane_elems(tiles);
    vec from[WINDOW_MAX] = {{0}};
    for (int i = 0; i < window_side(kernel); i++)
      if (is_inside && row + i >= 0 && row + i < tiles->height)
        vec_read(plane + ((row + i) * tiles->width + column) * TILE_BLOCK, &from[i]);
      else
        from[i] = (vec){0};
    window_line(kernel, from, 1, to[b], 1);
  }
}

/* Where column j of a window is in a ring of columns. */
static INLINED int ring_at(int first, int j, const int window) {
  return first + j < window ? first + j : first + j - window;
}

/* The windows of `n` tiles side by side, the first of them at `at`. Each shares all but two columns with the
   one before it. */
VARIANT static INLINED void windows_take(const int kernel, const struct blocks *blocks,
                                         const struct place *at, int64_t n, real *to) {
  const struct tiles *tiles = blocks->tiles;
  const int window = window_side(kernel), side = parts_side(kernel), shared = window - TILE_SIDE;
  int64_t row = TILE_SIDE * at->row - tiles->pad[0], column = TILE_SIDE * at->column - tiles->pad[1];
  window_column columns[WINDOW_MAX];
  vec parts[BLOCKS][SIDE_MAX];
  int first = 0;
  for (int j = 0; j < shared; j++)
    column_take(kernel, blocks, row, column + j, columns[j]);
  for (int64_t t = 0; t < n; t++, to += parts_count(kernel) * tiles->channels) {
    for (int j = shared; j < window; j++)
      column_take(kernel, blocks, row, column + j, columns[ring_at(first, j, window)]);
    for (int i = 0; i < side; i++) {
      for (int b = 0; b < blocks->n; b++) {
        vec line[WINDOW_MAX] = {{0}};
        for (int j = 0; j < window; j++)
          line[j] = columns[ring_at(first, j, window)][b][i];
        window_line(kernel, line, 1, parts[b], 1);
      }
      parts_write(kernel, parts, blocks->n, to + i * side * tiles->channels, tiles->channels);
    }
    column += TILE_SIDE;
    first = ring_at(first, TILE_SIDE, window);
  }
}

VARIANT static INLINED void take(const int kernel, const struct tiles *tiles, struct tile_range range,
                                 const real *image, real *v) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0, n; t < range.n; t += n) {
    n = tiles->columns - at.column < range.n - t ? tiles->columns - at.column : range.n - t;
    for (int64_t c = 0; c < tiles->channels; c += BLOCKS * TILE_BLOCK) {
      const real *planes = image + plane_at(tiles, at.sample, c / TILE_BLOCK);
      real *to = v + parts_count(kernel) * t * tiles->channels + c;
      if (blocks_from(c, tiles->channels) == BLOCKS)
        windows_take(kernel, &(struct blocks){tiles, planes, BLOCKS}, &at, n, to);
      else
        windows_take(kernel, &(struct blocks){tiles, planes, 1}, &at, n, to);
    }
    at.column += n - 1;
    place_next(tiles, &at);
  }
}

/* A block's row of the image, which begins with its pads, in the ring of rows. */
static INLINED float *sums_at(const int kernel, const struct tiles *tiles, float *sums, int64_t block,
                              int64_t row) {
  const int window = window_side(kernel);
  return sums + (block * window + row % window) * tiles_width(tiles, kernel) * TILE_BLOCK;
}

static INLINED void parts_read(const int kernel, const float *from, int64_t channels, vec *parts) {
  for (int p = 0; p < parts_count(kernel); p++)
    memcpy(&parts[p], from + p * channels, sizeof parts[p]);
}

/* A block's products and sums. */
struct given {
  const float *m;
  float *sums;
  int64_t block;
};

/* A block's parts -> its window. */
VARIANT static INLINED void window_make(const int kernel, const float *m, int64_t channels, vec *window) {
  const int side = parts_side(kernel);
  vec parts[SIDE_MAX * SIDE_MAX], lines[WINDOW_MAX * SIDE_MAX];
  parts_read(kernel, m, channels, parts);
  for (int j = 0; j < side; j++)
    give_line(kernel, parts + j, side, lines + j, side);
  for (int i = 0; i < window_side(kernel); i++)
    give_line(kernel, lines + i * side, 1, window + i * window_side(kernel), 1);
}

/* Adds the windows of `n` tiles side by side, the first of them at `at`, to the sums of a block. Of columns
   that two windows share, the first one's part waits for the next. */
VARIANT static INLINED void windows_give(const int kernel, const struct tiles *tiles, const struct place *at,
                                         int64_t n, struct given given) {
  const int side = window_side(kernel), shared = side - TILE_SIDE;
  vec window[WINDOW_MAX * WINDOW_MAX], waiting[WINDOW_MAX * WINDOW_MAX] = {{0}};
  for (int64_t t = 0; t < n; t++) {
    window_make(kernel, given.m + parts_count(kernel) * t * tiles->channels, tiles->channels, window);
    const int done = t + 1 < n ? TILE_SIDE : side;
    for (int i = 0; i < side; i++) {
      float *to = sums_at(kernel, tiles, given.sums, given.block, TILE_SIDE * at->row + i) +
                  TILE_SIDE * (at->column + t) * TILE_BLOCK;
      for (int j = 0; j < shared; j++)
        window[i * side + j] += waiting[i * side + j];
      for (int j = 0; j < done; j++) {
        vec sum;
        memcpy(&sum, to + j * TILE_BLOCK, sizeof sum);
        sum += window[i * side + j];
        memcpy(to + j * TILE_BLOCK, &sum, sizeof sum);
      }
      for (int j = 0; j < shared; j++)
        waiting[i * side + j] = window[i * side + j + TILE_SIDE];
    }
  }
}

/* Rows that no further window reaches: they go to the image, and begin anew. */
VARIANT static INLINED void rows_end(const int kernel, const struct tiles *tiles, const struct place *at,
                                     float *sums, real *image) {
  int n = at->row + 1 < tiles->rows ? TILE_SIDE : window_side(kernel);
  for (int64_t b = 0; b * TILE_BLOCK < tiles->channels; b++)
    for (int i = 0; i < n; i++) {
      int64_t row = TILE_SIDE * at->row + i, to = row - tiles->pad[0];
      float *from = sums_at(kernel, tiles, sums, b, row);
      real *plane = image + plane_at(tiles, at->sample, b);
      for (int64_t c = 0; to >= 0 && to < tiles->height && c < tiles->width; c++) {
        vec sum;
        memcpy(&sum, from + (c + tiles->pad[1]) * TILE_BLOCK, sizeof sum);
        blocks_write(&sum, &sum, 1, plane + (to * tiles->width + c) * TILE_BLOCK);
      }
      memset(from, 0, (size_t)(tiles_width(tiles, kernel) * TILE_BLOCK) * sizeof *from);
    }
}

struct give_to {
  float *sums;
  real *image;
};

VARIANT static INLINED void give(const int kernel, const struct tiles *tiles, struct tile_range range,
                                 const float *m, struct give_to to) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0, n; t < range.n; t += n) {
    n = tiles->columns - at.column < range.n - t ? tiles->columns - at.column : range.n - t;
    for (int64_t b = 0; b * TILE_BLOCK < tiles->channels; b++)
      windows_give(
          kernel, tiles, &at, n,
          (struct given){m + parts_count(kernel) * t * tiles->channels + b * TILE_BLOCK, to.sums, b});
    at.column += n - 1;
    if (at.column + 1 == tiles->columns)
      rows_end(kernel, tiles, &at, to.sums, to.image);
    place_next(tiles, &at);
  }
}

/* A tile's elements that are inside the image. */
static INLINED bool tile_elem(const struct tiles *tiles, const struct place *at, int e, int64_t *elem) {
  int64_t r = TILE_SIDE * at->row + e / TILE_SIDE, c = TILE_SIDE * at->column + e % TILE_SIDE;
  *elem = (r * tiles->width + c) * TILE_BLOCK;
  return r < tiles->height && c < tiles->width;
}

struct put_to {
  const float *bias;
  real *image;
};

VARIANT static INLINED void put(const int kernel, const struct tiles *tiles, struct tile_range range,
                                const float *m, struct put_to to) {
  const int side = parts_side(kernel);
  struct place at = place_of(tiles, range.first);
  int64_t elem;
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t b = 0; b * TILE_BLOCK < tiles->channels; b++) {
      real *plane = to.image + plane_at(tiles, at.sample, b);
      vec parts[SIDE_MAX * SIDE_MAX], lines[SIDE_MAX * TILE_SIDE], tile[TILE_SIDE * TILE_SIDE], shift = {0};
      parts_read(kernel, m + parts_count(kernel) * t * tiles->channels + b * TILE_BLOCK, tiles->channels,
                 parts);
      for (int i = 0; i < side; i++)
        tile_line(kernel, parts + side * i, 1, lines + TILE_SIDE * i, 1);
      for (int j = 0; j < TILE_SIDE; j++)
        tile_line(kernel, lines + j, TILE_SIDE, tile + j, TILE_SIDE);
      if (to.bias)
        memcpy(&shift, to.bias + b * TILE_BLOCK, sizeof shift);
      for (int e = 0; e < TILE_SIDE * TILE_SIDE; e++) {
        tile[e] += shift;
        if (tile_elem(tiles, &at, e, &elem))
          blocks_write(&tile[e], &tile[e], 1, plane + elem);
      }
    }
}

VARIANT static INLINED void tile_spread(const int kernel, const struct blocks *blocks, const struct place *at,
                                        real *to) {
  const struct tiles *tiles = blocks->tiles;
  const int side = parts_side(kernel);
  vec lines[BLOCKS][SIDE_MAX][TILE_SIDE], parts[BLOCKS][SIDE_MAX];
  int64_t elem;
  for (int b = 0; b < blocks->n; b++) {
    vec tile[TILE_SIDE * TILE_SIDE];
    for (int e = 0; e < TILE_SIDE * TILE_SIDE; e++)
      if (tile_elem(tiles, at, e, &elem))
        vec_read(blocks->planes + b * plane_elems(tiles) + elem, &tile[e]);
      else
        tile[e] = (vec){0};
    for (int j = 0; j < TILE_SIDE; j++)
      spread_line(kernel, tile + j, TILE_SIDE, &lines[b][0][j], TILE_SIDE);
  }
  for (int i = 0; i < side; i++) {
    for (int b = 0; b < blocks->n; b++)
      spread_line(kernel, lines[b][i], 1, parts[b], 1);
    parts_write(kernel, parts, blocks->n, to + i * side * tiles->channels, tiles->channels);
  }
}

VARIANT static INLINED void spread(const int kernel, const struct tiles *tiles, struct tile_range range,
                                   const real *image, real *w) {
  struct place at = place_of(tiles, range.first);
  for (int64_t t = 0; t < range.n; t++, place_next(tiles, &at))
    for (int64_t c = 0; c < tiles->channels; c += BLOCKS * TILE_BLOCK) {
      const real *planes = image + plane_at(tiles, at.sample, c / TILE_BLOCK);
      real *to = w + parts_count(kernel) * t * tiles->channels + c;
      if (blocks_from(c, tiles->channels) == BLOCKS)
        tile_spread(kernel, &(struct blocks){tiles, planes, BLOCKS}, &at, to);
      else
        tile_spread(kernel, &(struct blocks){tiles, planes, 1}, &at, to);
    }
}

/* Rows of an image are added in f32, and their sums in f64. */
VARIANT static void sum(const struct tiles *tiles, const void *image, float *sums) {
  for (int64_t b = 0; b * TILE_BLOCK < tiles->channels; b++) {
    double totals[TILE_BLOCK] = {0};
    for (int64_t row = 0; row < tiles->samples * tiles->height; row++) {
      const real *from = (const real *)image + plane_at(tiles, row / tiles->height, b) +
                         row % tiles->height * tiles->width * TILE_BLOCK;
      vec of_row = {0}, elems;
      for (int64_t c = 0; c < tiles->width; c++) {
        vec_read(from + c * TILE_BLOCK, &elems);
        of_row += elems;
      }
      for (int l = 0; l < TILE_BLOCK; l++)
        totals[l] += (double)of_row[l];
    }
    for (int l = 0; l < TILE_BLOCK; l++)
      sums[b * TILE_BLOCK + l] = (float)totals[l];
  }
}

/* A kernel's elements, which fill a vector in part. */
static INLINED int taps_of(const int kernel) {
  return kernel * kernel;
}

enum { TAPS_MAX = 2 * TILE_BLOCK };

VARIANT static INLINED void kernels_transform(const int kernel, const vec taps[][TAPS_MAX], int n_blocks,
                                              real *to, int64_t channels) {
  const int side = parts_side(kernel);
  vec lines[BLOCKS][SIDE_MAX][KERNEL_MAX], parts[BLOCKS][SIDE_MAX];
  for (int b = 0; b < n_blocks; b++)
    for (int j = 0; j < kernel; j++)
      kernel_line(kernel, taps[b] + j, kernel, &lines[b][0][j], KERNEL_MAX);
  for (int i = 0; i < side; i++) {
    for (int b = 0; b < n_blocks; b++)
      kernel_line(kernel, lines[b][i], 1, parts[b], 1);
    parts_write(kernel, parts, n_blocks, to + i * side * channels, channels);
  }
}

/* Rows become columns: each of four turns interleaves the upper half of the rows with the lower half. */
VARIANT static INLINED void transpose(vec rows[TILE_BLOCK]) {
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

/* Of the vector that begins with element `tap` of a kernel: vectors reach from a kernel's last elements into
   the next kernels, unless the weights end there. */
static INLINED size_t vector_bytes(const int kernel, const struct kernels *kernels, int64_t number,
                                   const int tap) {
  const int rest = taps_of(kernel) - tap;
  bool is_inside =
      number * taps_of(kernel) + tap + TILE_BLOCK <= kernels->out * kernels->in * taps_of(kernel);
  return (rest >= TILE_BLOCK || is_inside ? TILE_BLOCK : rest) * sizeof(float);
}

struct kernel_walk {
  int64_t first, step;
};

/* A block of kernels, `step` apart from kernel number `first` on: taps[t] are their elements t. */
VARIANT static INLINED void kernels_read(const int kernel, const struct kernels *kernels,
                                         const float *weights, struct kernel_walk walk, vec taps[TAPS_MAX]) {
  for (int tap = 0; tap < taps_of(kernel); tap += TILE_BLOCK) {
    for (int l = 0; l < TILE_BLOCK; l++) {
      int64_t number = walk.first + l * walk.step;
      const float *from = weights + number * taps_of(kernel) + tap;
      taps[tap + l] = (vec){0};
      if (vector_bytes(kernel, kernels, number, tap) == sizeof(vec))
        memcpy(&taps[tap + l], from, sizeof(vec));
      else
        memcpy(&taps[tap + l], from, (size_t)(taps_of(kernel) - tap) * sizeof *from);
    }
    transpose(taps + tap);
  }
}

/* A block of inputs at a time, whose weights lie side by side. */
VARIANT static INLINED void kernels_take(const int kernel, const struct kernels *kernels,
                                         const float *weights, real *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t first = 0; first < in; first += TILE_BLOCK)
    for (int64_t o = 0; o < out; o += BLOCKS * TILE_BLOCK)
      for (int64_t i = first; i < first + TILE_BLOCK; i++) {
        int n = blocks_from(o, out);
        vec taps[BLOCKS][TAPS_MAX];
        for (int b = 0; b < n; b++)
          kernels_read(kernel, kernels, weights, (struct kernel_walk){(o + b * TILE_BLOCK) * in + i, in},
                       taps[b]);
        kernels_transform(kernel, taps, n, u + parts_count(kernel) * i * out + o, out);
      }
}

VARIANT static INLINED void kernels_take_turned(const int kernel, const struct kernels *kernels,
                                                const float *weights, real *u) {
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i += BLOCKS * TILE_BLOCK) {
      int n = blocks_from(i, in);
      vec taps[BLOCKS][TAPS_MAX];
      for (int b = 0; b < n; b++)
        kernels_read(kernel, kernels, weights, (struct kernel_walk){o * in + i + b * TILE_BLOCK, 1}, taps[b]);
      kernels_transform(kernel, taps, n, u + parts_count(kernel) * o * in + i, in);
    }
}

/* What reaches into the next kernels is written over when they are. */
VARIANT static INLINED void kernels_put(const int kernel, const struct kernels *kernels, const float *s,
                                        float *gradient) {
  const int side = parts_side(kernel);
  int64_t out = kernels->out, in = kernels->in;
  for (int64_t o = 0; o < out; o++)
    for (int64_t i = 0; i < in; i += TILE_BLOCK) {
      vec parts[SIDE_MAX * SIDE_MAX], lines[SIDE_MAX * KERNEL_MAX], rows[TAPS_MAX] = {{0}};
      parts_read(kernel, s + parts_count(kernel) * o * in + i, in, parts);
      for (int r = 0; r < side; r++)
        gradient_line(kernel, parts + side * r, 1, lines + kernel * r, 1);
      for (int c = 0; c < kernel; c++)
        gradient_line(kernel, lines + c, kernel, rows + c, kernel);
      for (int tap = 0; tap < taps_of(kernel); tap += TILE_BLOCK)
        transpose(rows + tap);
      for (int l = 0; l < TILE_BLOCK; l++)
        for (int tap = 0; tap < taps_of(kernel); tap += TILE_BLOCK) {
          int64_t number = o * in + i + l;
          memcpy(gradient + number * taps_of(kernel) + tap, &rows[tap + l],
                 vector_bytes(kernel, kernels, number, tap));
        }
    }
}

#define TRANSFORMS(K)                                                                                        \
  VARIANT static void take_##K(const struct tiles *tiles, struct tile_range range, const void *image,        \
                               void *v) {                                                                    \
    take(K, tiles, range, image, v);                                                                         \
  }                                                                                                          \
  VARIANT static void give_##K(const struct tiles *tiles, struct tile_range range, const float *m,           \
                               float *sums, void *image) {                                                   \
    give(K, tiles, range, m, (struct give_to){sums, image});                                                 \
  }                                                                                                          \
  VARIANT static void put_##K(const struct tiles *tiles, struct tile_range range, const float *m,            \
                              const float *bias, void *image) {                                              \
    put(K, tiles, range, m, (struct put_to){bias, image});                                                   \
  }                                                                                                          \
  VARIANT static void spread_##K(const struct tiles *tiles, struct tile_range range, const void *image,      \
                                 void *w) {                                                                  \
    spread(K, tiles, range, image, w);                                                                       \
  }                                                                                                          \
  VARIANT static void kernels_take_##K(const struct kernels *kernels, const float *weights, void *u) {       \
    kernels_take(K, kernels, weights, u);                                                                    \
  }                                                                                                          \
  VARIANT static void kernels_take_turned_##K(const struct kernels *kernels, const float *weights,           \
                                              void *u) {                                                     \
    kernels_take_turned(K, kernels, weights, u);                                                             \
  }                                                                                                          \
  VARIANT static void kernels_put_##K(const struct kernels *kernels, const float *s, float *gradient) {      \
    kernels_put(K, kernels, s, gradient);                                                                    \
  }

/* Of the table, behind TRANSFORMS(K). */
#define TRANSFORMS_ROW(K, n_parts)                                                                           \
  {                                                                                                          \
    .kernel = K, .parts = n_parts, .take = take_##K, .give = give_##K, .put = put_##K, .spread = spread_##K, \
    .kernels_take = kernels_take_##K, .kernels_take_turned = kernels_take_turned_##K,                        \
    .kernels_put = kernels_put_##K, .sum = sum                                                               \
  }

#endif

/* Means and variances of channels, and the gradient of a norm by them. */
#include "worker/backend/cpu/norms/moments.h"

#include "common/base/vector_variants.h"
#include "worker/backend/cpu/reals.h"

/* Elements of a row: LANES where the positions of a block of channels follow each other, up to LANES_MAX
   where channels do. CHUNK: rows that are added in f32. */
enum { LANES = 16, LANES_MAX = 64, CHUNK = 32 };

/* How many positions a sample has, and the step from one to the next. False if there are several steps. */
static bool positions_of(const dnnl_memory_desc_t *layout, int64_t *positions, int64_t *step) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  *positions = 1;
  *step = 0;
  for (int d = layout->ndims - 1; d >= 2; d--) {
    if (layout->dims[d] == 1)
      continue;
    if (*positions == 1)
      *step = blocking->strides[d];
    else if (blocking->strides[d] != *step * *positions)
      return false;
    *positions *= layout->dims[d];
  }
  return true;
}

bool moments_init(struct moments *m, const dnnl_memory_desc_t *layout) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  *m = (struct moments){
      .channels = layout->dims[1], .padded = layout->padded_dims[1], .block = 1, .repeats = 1};
  m->is_bf16 = layout->data_type == dnnl_bf16;
  if (layout->format_kind != dnnl_blocked || blocking->inner_nblks > 1)
    return false;
  if (blocking->inner_nblks == 1)
    m->block = blocking->inner_blks[0];
  if ((m->block > 1 && blocking->inner_idxs[0] != 1) || LANES % m->block != 0 ||
      !positions_of(layout, &m->rows, &m->row_step))
    return false;
  m->elems = (double)(layout->dims[0] * m->rows);
  m->samples = layout->dims[0];
  m->sample_step = blocking->strides[0];
  m->block_step = blocking->strides[1];
  if (m->rows == 1) { /* samples may as well be the positions of one */
    m->rows = m->samples;
    m->row_step = m->sample_step;
    m->samples = 1;
  }
  if (m->row_step == m->block) { /* positions follow each other */
    int64_t elems = m->rows * m->block;
    m->repeats = LANES / m->block;
    m->rows = elems / LANES;
    m->row_step = LANES;
    m->rest = elems % LANES;
  } else if (m->block_step == m->block) { /* channels do */
    m->block = LANES_MAX;
    m->block_step = LANES_MAX;
  }
  return m->block * m->repeats > 1;
}

/* Rows of one sample, from element `at` of each tensor on. tail: elements of a last one, which is shorter. */
struct rows {
  const void *x, *dy;
  void *dx;
  bool is_bf16;
  int64_t at, n, step, tail;
};

/* By place in a row: what is known of its channel. */
struct places {
  float mean[LANES_MAX], offset[LANES_MAX], slope[LANES_MAX], factor[LANES_MAX];
};

/* The same, and sums over rows. */
struct lanes {
  struct places known;
  double sums[LANES_MAX], products[LANES_MAX];
};

enum terms { TERMS_X, TERMS_SQUARES, TERMS_DY, TERMS_PRODUCTS };

/* Of element i: x, (x - mean)^2, dy or dy (x - mean). */
static INLINED float term_of(enum terms terms, const struct rows *rows, int64_t i, float mean) {
  float x = terms == TERMS_DY ? 0 : real_at(rows->x, i, rows->is_bf16);
  switch (terms) {
  case TERMS_X:
    return x;
  case TERMS_SQUARES:
    return (x - mean) * (x - mean);
  case TERMS_DY:
    return real_at(rows->dy, i, rows->is_bf16);
  default:
    return real_at(rows->dy, i, rows->is_bf16) * (x - mean);
  }
}

/* totals += the terms of a few rows, in f32 first. Of two kinds in one loop gcc would not make vectors. */
static INLINED void add_terms(enum terms terms, const struct rows *rows, const int64_t elems,
                              const float *mean, double *totals) {
  float sums[LANES_MAX];
  for (int64_t l = 0; l < elems; l++)
    sums[l] = 0;
  for (int64_t r = 0; r < rows->n; r++)
    for (int64_t l = 0; l < elems; l++)
      sums[l] += term_of(terms, rows, rows->at + r * rows->step + l, mean[l]);
  for (int64_t l = 0; l < elems; l++)
    totals[l] += (double)sums[l];
}

/* dx = (dy - offset - (x - mean) slope) factor, where dx may be dy: a row is read before it is written. */
static INLINED void spread_rows(const struct rows *rows, const int64_t elems, const struct places *known) {
  const bool is_bf16 = rows->is_bf16;
  float row[LANES_MAX];
  for (int64_t r = 0; r < rows->n; r++) {
    int64_t at = rows->at + r * rows->step;
    for (int64_t l = 0; l < elems; l++) {
      float x = real_at(rows->x, at + l, is_bf16), dy = real_at(rows->dy, at + l, is_bf16);
      row[l] = (dy - known->offset[l] - (x - known->mean[l]) * known->slope[l]) * known->factor[l];
    }
    for (int64_t l = 0; l < elems; l++)
      real_put(rows->dx, at + l, is_bf16, row[l]);
  }
}

enum walk { WALK_X, WALK_SQUARES, WALK_GRADIENT, WALK_SPREAD };

static INLINED void add_rows(enum walk walk, struct rows rows, const int64_t elems,
                             const struct places *known, struct lanes *lanes) {
  const enum terms terms = walk == WALK_X ? TERMS_X : walk == WALK_SQUARES ? TERMS_SQUARES : TERMS_DY;
  for (int64_t left = rows.n; left > 0; left -= CHUNK, rows.at += CHUNK * rows.step) {
    rows.n = left < CHUNK ? left : CHUNK;
    add_terms(terms, &rows, elems, known->mean, lanes->sums);
    if (walk == WALK_GRADIENT)
      add_terms(TERMS_PRODUCTS, &rows, elems, known->mean, lanes->products);
  }
}

/* All rows of a block of channels that begins at rows.at; they have so many elements. */
static INLINED void walk_samples(enum walk walk, const struct moments *m, struct rows rows,
                                 const int64_t elems, struct lanes *lanes) {
  const struct places known = lanes->known; /* to which no tensor can point: it stays in registers */
  struct rows rest = rows;
  rows.n = m->rows;
  rows.step = m->row_step;
  rest.at += m->rows * m->row_step;
  rest.n = 1;
  for (int64_t s = 0; s < m->samples; s++, rows.at += m->sample_step, rest.at += m->sample_step)
    if (walk == WALK_SPREAD) {
      spread_rows(&rows, elems, &known);
      if (rows.tail)
        spread_rows(&rest, rows.tail, &known);
    } else {
      add_rows(walk, rows, elems, &known, lanes);
      if (rows.tail)
        add_rows(walk, rest, rows.tail, &known, lanes);
    }
}

/* The usual numbers of elements are constants, for which loops become vectors. Only where positions follow
   each other, and rows have LANES, there is a rest. */
static INLINED void walk_sized(enum walk walk, const struct moments *m, struct rows rows, int64_t elems,
                               struct lanes *lanes) {
  if (elems == LANES) {
    rows.tail = m->rest;
    walk_samples(walk, m, rows, LANES, lanes);
    return;
  }
  rows.tail = 0;
  if (elems == LANES_MAX)
    walk_samples(walk, m, rows, LANES_MAX, lanes);
  else
    walk_samples(walk, m, rows, elems, lanes);
}

/* So is the type. */
#define BLOCK_WALK(name, walk)                                                                               \
  BF16_VARIANT static void name##_bf16(const struct moments *m, const struct rows *rows, int64_t elems,      \
                                       struct lanes *lanes) {                                                \
    struct rows typed = *rows;                                                                               \
    typed.is_bf16 = true;                                                                                    \
    walk_sized(walk, m, typed, elems, lanes);                                                                \
  }                                                                                                          \
  VECTOR_VARIANTS static void name(const struct moments *m, const struct rows *rows, int64_t elems,          \
                                   struct lanes *lanes) {                                                    \
    struct rows typed = *rows;                                                                               \
    typed.is_bf16 = false;                                                                                   \
    walk_sized(walk, m, typed, elems, lanes);                                                                \
  }

BLOCK_WALK(walk_x, WALK_X)
BLOCK_WALK(walk_squares, WALK_SQUARES)
BLOCK_WALK(walk_gradient, WALK_GRADIENT)
BLOCK_WALK(walk_spread, WALK_SPREAD)

typedef void block_walk(const struct moments *m, const struct rows *rows, int64_t elems, struct lanes *lanes);

/* [1]: of bf16 */
static block_walk *const block_walks[][2] = {
    [WALK_X] = {walk_x, walk_x_bf16},
    [WALK_SQUARES] = {walk_squares, walk_squares_bf16},
    [WALK_GRADIENT] = {walk_gradient, walk_gradient_bf16},
    [WALK_SPREAD] = {walk_spread, walk_spread_bf16},
};

/* The block of channels from `first` on. */
static void walk_block(const struct moments *m, enum walk walk, struct rows rows, int64_t first,
                       struct lanes *lanes) {
  int64_t width = first + m->block < m->padded ? m->block : m->padded - first;
  rows.at = first / m->block * m->block_step;
  block_walks[walk][m->is_bf16](m, &rows, width * m->repeats, lanes);
}

/* How many channels the block from `first` on has, without padding. */
static int64_t channels_from(const struct moments *m, int64_t first) {
  return first + m->block < m->channels ? m->block : m->channels - first;
}

/* The sum of the block's channel k, of sums by place, which begin anew at 0. */
static double take_sum(const struct moments *m, double *sums, int64_t k) {
  double sum = 0;
  for (int64_t l = k; l < LANES_MAX; l += m->block) {
    sum += sums[l];
    sums[l] = 0;
  }
  return sum;
}

/* At the places of the block's channel k. */
static void put_value(const struct moments *m, float *places, int64_t k, float value) {
  for (int64_t l = k; l < LANES_MAX; l += m->block)
    places[l] = value;
}

void moments_compute(const struct moments *m, const void *x, float *mean, float *variance) {
  struct rows rows = {.x = x};
  for (int64_t first = 0; first < m->channels; first += m->block) {
    struct lanes lanes = {0};
    int64_t n = channels_from(m, first);
    walk_block(m, WALK_X, rows, first, &lanes);
    for (int64_t k = 0; k < n; k++) {
      mean[first + k] = (float)(take_sum(m, lanes.sums, k) / m->elems);
      put_value(m, lanes.known.mean, k, mean[first + k]);
    }
    walk_block(m, WALK_SQUARES, rows, first, &lanes);
    for (int64_t k = 0; k < n; k++)
      variance[first + k] = (float)(take_sum(m, lanes.sums, k) / m->elems);
  }
}

void moments_differentiate(const struct moments *m, const struct moments_gradient *g) {
  struct rows rows = {.x = g->x, .dy = g->dy, .dx = g->dx};
  for (int64_t first = 0; first < m->channels; first += m->block) {
    struct lanes lanes = {0};
    int64_t n = channels_from(m, first);
    for (int64_t k = 0; k < n; k++)
      put_value(m, lanes.known.mean, k, g->mean[first + k]);
    walk_block(m, WALK_GRADIENT, rows, first, &lanes);
    for (int64_t k = 0; k < n; k++) {
      double sum = take_sum(m, lanes.sums, k), inv_std = g->inv_std[first + k];
      double dscale = take_sum(m, lanes.products, k) * inv_std;
      g->dbias[first + k] = (float)sum;
      g->dscale[first + k] = (float)dscale;
      put_value(m, lanes.known.offset, k, (float)(sum / m->elems));
      put_value(m, lanes.known.slope, k, (float)(dscale * inv_std / m->elems));
      put_value(m, lanes.known.factor, k, (float)(g->scale[first + k] * inv_std));
    }
    walk_block(m, WALK_SPREAD, rows, first, &lanes);
  }
}

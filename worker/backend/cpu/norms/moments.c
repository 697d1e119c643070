/* Means and variances of channels, norms by them, and the gradient of a norm. */
#include "worker/backend/cpu/norms/moments.h"

#include <math.h>

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

/* The activation lets gradients through where norm > low and norm < high; high: NAN where there is no bound.
 */
struct gate {
  float low, high;
};

/* Rows of one sample, from element `at` of each tensor on. tail: elements of a last one, which is shorter. */
struct rows {
  const void *x, *dy;
  void *to; /* y or dx */
  bool is_bf16;
  struct fused_activation activation; /* of y */
  struct gate gate;                   /* of dy */
  int64_t at, n, step, tail;
};

/* By place in a row: what is known of its channel. */
struct places {
  float mean[LANES_MAX], gain[LANES_MAX], shift[LANES_MAX];     /* of norms */
  float offset[LANES_MAX], slope[LANES_MAX], factor[LANES_MAX]; /* of their gradients */
};

/* The same, and sums over rows. */
struct lanes {
  struct places known;
  double sums[LANES_MAX], products[LANES_MAX];
};

/* The multiplication and the addition round once, as in oneDNN's kernels; where the CPU cannot, libm does. */
static INLINED float norm_of(float x, const struct places *known, int64_t l) {
  return __builtin_fmaf(x - known->mean[l], known->gain[l], known->shift[l]);
}

static INLINED float activated(float x, const enum fused_activation_kind kind,
                               const struct fused_activation *of) {
  if (kind == FUSED_RELU)
    return x > 0 ? x : 0;
  if (kind == FUSED_NONE)
    return x;
  x = x < of->low ? of->low : x;
  return x > of->high ? of->high : x;
}

/* What reaches the norm of dy. */
static INLINED float masked(float dy, float x, const struct gate *gate, const struct places *known,
                            int64_t l) {
  float norm = norm_of(x, known, l);
  return (norm > gate->low) & !(norm >= gate->high) ? dy : 0;
}

enum terms { TERMS_X, TERMS_SQUARES, TERMS_DY, TERMS_PRODUCTS, TERMS_DY_MASKED, TERMS_PRODUCTS_MASKED };

/* Of element i, at place l of its row: x, (x - mean)^2, dy or dy (x - mean). */
static INLINED float term_of(enum terms terms, const struct rows *rows, const struct places *known, int64_t i,
                             int64_t l) {
  float x = real_at(rows->x, i, rows->is_bf16), centred = x - known->mean[l], dy;
  if (terms == TERMS_X)
    return x;
  if (terms == TERMS_SQUARES)
    return centred * centred;
  dy = real_at(rows->dy, i, rows->is_bf16);
  if (terms >= TERMS_DY_MASKED)
    dy = masked(dy, x, &rows->gate, known, l);
  return terms == TERMS_DY || terms == TERMS_DY_MASKED ? dy : dy * centred;
}

/* totals += the terms of a few rows, in f32 first. Of two kinds in one loop gcc would not make vectors. */
static INLINED void add_terms(enum terms terms, const struct rows *rows, const int64_t elems,
                              const struct places *known, double *totals) {
  float sums[LANES_MAX];
  for (int64_t l = 0; l < elems; l++)
    sums[l] = 0;
  for (int64_t r = 0; r < rows->n; r++)
    for (int64_t l = 0; l < elems; l++)
      sums[l] += term_of(terms, rows, known, rows->at + r * rows->step + l, l);
  for (int64_t l = 0; l < elems; l++)
    totals[l] += (double)sums[l];
}

/* Sums of terms first, then what makes rows. */
enum walk {
  WALK_X,
  WALK_SQUARES,
  WALK_GRADIENT, /* without an activation, and behind one */
  WALK_GRADIENT_MASKED,
  WALK_NORM, /* without an activation, with ReLU, with Clip */
  WALK_NORM_RELU,
  WALK_NORM_CLIP,
  WALK_SPREAD, /* without an activation, and behind one */
  WALK_SPREAD_MASKED
};

static INLINED enum fused_activation_kind walk_activation(enum walk walk) {
  return walk == WALK_NORM_RELU ? FUSED_RELU : walk == WALK_NORM_CLIP ? FUSED_CLIP : FUSED_NONE;
}

static INLINED void read_row(const void *from, int64_t at, const bool is_bf16, const int64_t elems,
                             float *to) {
  for (int64_t l = 0; l < elems; l++)
    to[l] = real_at(from, at + l, is_bf16);
}

/* In place: y = activation(norm(x)). A loop that gcc unrolls early it makes no vectors of. */
static INLINED void norm_row(const enum walk walk, const struct rows *rows, const int64_t elems,
                             const struct places *known, float *x) {
#pragma GCC unroll 1
  for (int64_t l = 0; l < elems; l++)
    x[l] = activated(norm_of(x[l], known, l), walk_activation(walk), &rows->activation);
}

/* In place: what reaches the norm of dy. */
static INLINED void mask_row(const struct rows *rows, const int64_t elems, const struct places *known,
                             const float *x, float *dy) {
  for (int64_t l = 0; l < elems; l++)
    dy[l] = masked(dy[l], x[l], &rows->gate, known, l);
}

/* In place: dx = (dy - offset - (x - mean) slope) factor. */
static INLINED void spread_row(const int64_t elems, const struct places *known, const float *x, float *dy) {
  for (int64_t l = 0; l < elems; l++)
    dy[l] = (dy[l] - known->offset[l] - (x[l] - known->mean[l]) * known->slope[l]) * known->factor[l];
}

/* Each row becomes one of the result, which may lie in the same bytes. */
static INLINED void make_rows(const enum walk walk, const struct rows *of, const int64_t elems,
                              const struct places *known) {
  const struct rows rows = *of;
  float x[LANES_MAX], dy[LANES_MAX];
  for (int64_t r = 0; r < rows.n; r++) {
    int64_t at = rows.at + r * rows.step;
    read_row(rows.x, at, rows.is_bf16, elems, x);
    if (walk < WALK_SPREAD) {
      norm_row(walk, &rows, elems, known, x);
      reals_put(rows.to, at, rows.is_bf16, x, elems);
      continue;
    }
    read_row(rows.dy, at, rows.is_bf16, elems, dy);
    if (walk == WALK_SPREAD_MASKED)
      mask_row(&rows, elems, known, x, dy);
    spread_row(elems, known, x, dy);
    reals_put(rows.to, at, rows.is_bf16, dy, elems);
  }
}

static INLINED bool makes_rows(enum walk walk) {
  return walk >= WALK_NORM;
}

static INLINED void add_rows(enum walk walk, struct rows rows, const int64_t elems,
                             const struct places *known, struct lanes *lanes) {
  const int masked = walk == WALK_GRADIENT_MASKED ? TERMS_DY_MASKED - TERMS_DY : 0;
  const enum terms terms = walk == WALK_X         ? TERMS_X
                           : walk == WALK_SQUARES ? TERMS_SQUARES
                                                  : TERMS_DY + masked;
  for (int64_t left = rows.n; left > 0; left -= CHUNK, rows.at += CHUNK * rows.step) {
    rows.n = left < CHUNK ? left : CHUNK;
    add_terms(terms, &rows, elems, known, lanes->sums);
    if (walk == WALK_GRADIENT || walk == WALK_GRADIENT_MASKED)
      add_terms(TERMS_PRODUCTS + masked, &rows, elems, known, lanes->products);
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
    if (makes_rows(walk)) {
      make_rows(walk, &rows, elems, &known);
      if (rows.tail)
        make_rows(walk, &rest, rows.tail, &known);
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
BLOCK_WALK(walk_norm, WALK_NORM)
BLOCK_WALK(walk_norm_relu, WALK_NORM_RELU)
BLOCK_WALK(walk_norm_clip, WALK_NORM_CLIP)
BLOCK_WALK(walk_gradient, WALK_GRADIENT)
BLOCK_WALK(walk_gradient_masked, WALK_GRADIENT_MASKED)
BLOCK_WALK(walk_spread, WALK_SPREAD)
BLOCK_WALK(walk_spread_masked, WALK_SPREAD_MASKED)

typedef void block_walk(const struct moments *m, const struct rows *rows, int64_t elems, struct lanes *lanes);

/* [1]: of bf16 */
static block_walk *const block_walks[][2] = {
    [WALK_X] = {walk_x, walk_x_bf16},
    [WALK_SQUARES] = {walk_squares, walk_squares_bf16},
    [WALK_NORM] = {walk_norm, walk_norm_bf16},
    [WALK_NORM_RELU] = {walk_norm_relu, walk_norm_relu_bf16},
    [WALK_NORM_CLIP] = {walk_norm_clip, walk_norm_clip_bf16},
    [WALK_GRADIENT] = {walk_gradient, walk_gradient_bf16},
    [WALK_GRADIENT_MASKED] = {walk_gradient_masked, walk_gradient_masked_bf16},
    [WALK_SPREAD] = {walk_spread, walk_spread_bf16},
    [WALK_SPREAD_MASKED] = {walk_spread_masked, walk_spread_masked_bf16},
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

static void find_moments(const struct moments *m, const struct moments_norm *norm, int64_t first) {
  struct rows rows = {.x = norm->x};
  struct lanes lanes = {0};
  int64_t n = channels_from(m, first);
  walk_block(m, WALK_X, rows, first, &lanes);
  for (int64_t k = 0; k < n; k++) {
    norm->mean[first + k] = (float)(take_sum(m, lanes.sums, k) / m->elems);
    put_value(m, lanes.known.mean, k, norm->mean[first + k]);
  }
  walk_block(m, WALK_SQUARES, rows, first, &lanes);
  for (int64_t k = 0; k < n; k++)
    norm->variance[first + k] = (float)(take_sum(m, lanes.sums, k) / m->elems);
}

static void normalize_block(const struct moments *m, const struct moments_norm *norm, int64_t first) {
  static const enum walk walks[] = {
      [FUSED_NONE] = WALK_NORM, [FUSED_RELU] = WALK_NORM_RELU, [FUSED_CLIP] = WALK_NORM_CLIP};
  struct rows rows = {.x = norm->x, .to = norm->y, .activation = norm->activation};
  struct lanes lanes = {0};
  int64_t n = channels_from(m, first);
  for (int64_t c = first; c < first + n; c++) {
    float gain = norm->scale[c] / sqrtf(norm->variance[c] + norm->epsilon);
    put_value(m, lanes.known.mean, c - first, norm->mean[c]);
    put_value(m, lanes.known.gain, c - first, gain);
    put_value(m, lanes.known.shift, c - first, norm->bias[c]);
    if (norm->line) {
      norm->line[c] = gain;
      norm->line[m->channels + c] = norm->bias[c];
    }
  }
  walk_block(m, walks[norm->activation.kind], rows, first, &lanes);
}

void moments_normalize(const struct moments *m, const struct moments_norm *norm) {
  for (int64_t first = 0; first < m->channels; first += m->block)
    normalize_block(m, norm, first);
}

void moments_train(const struct moments *m, const struct moments_norm *norm) {
  for (int64_t first = 0; first < m->channels; first += m->block) {
    find_moments(m, norm, first);
    normalize_block(m, norm, first);
  }
}

/* The least f32 that becomes at least `bound` when it is rounded to bf16. */
static float least_rounded_to(float bound) {
  uint32_t bits;
  float nearer, farther, middle;
  if (bound == 0 || isinf(bound))
    return bound;
  memcpy(&bits, &bound, sizeof bits);
  nearer = real_of_bf16((uint16_t)(bits >> 16)); /* to 0 */
  if (nearer == bound && bound > 0)
    farther = real_of_bf16((uint16_t)((bits >> 16) - 1)); /* the one below it */
  else
    farther = real_of_bf16((uint16_t)((bits >> 16) + 1));
  middle = nearer / 2 + farther / 2;
  return real_of_bf16(bf16_of_real(middle)) >= bound ? middle : nextafterf(middle, INFINITY);
}

/* In terms of the norm before it is rounded, by which results of Clip stay at a bound or not. */
static struct gate gate_of(const struct moments *m, const struct fused_activation *activation) {
  float low = activation->low, high = activation->high;
  if (activation->kind == FUSED_RELU)
    return (struct gate){0, NAN};
  return m->is_bf16 ? (struct gate){-least_rounded_to(-low), least_rounded_to(high)}
                    : (struct gate){low, high};
}

static void differentiate_block(const struct moments *m, const struct moments_gradient *g, struct rows rows,
                                int64_t first) {
  bool is_masked = g->activation.kind != FUSED_NONE;
  struct lanes lanes = {0};
  struct places *known = &lanes.known;
  int64_t n = channels_from(m, first);
  for (int64_t k = 0; k < n; k++) {
    put_value(m, known->mean, k, g->mean[first + k]);
    if (is_masked) {
      put_value(m, known->gain, k, g->line[first + k]);
      put_value(m, known->shift, k, g->line[m->channels + first + k]);
    }
  }
  walk_block(m, is_masked ? WALK_GRADIENT_MASKED : WALK_GRADIENT, rows, first, &lanes);
  for (int64_t k = 0; k < n; k++) {
    double sum = take_sum(m, lanes.sums, k), inv_std = g->inv_std[first + k];
    double dscale = take_sum(m, lanes.products, k) * inv_std;
    g->dbias[first + k] = (float)sum;
    g->dscale[first + k] = (float)dscale;
    put_value(m, known->offset, k, (float)(sum / m->elems));
    put_value(m, known->slope, k, (float)(dscale * inv_std / m->elems));
    put_value(m, known->factor, k, (float)(g->scale[first + k] * inv_std));
  }
  walk_block(m, is_masked ? WALK_SPREAD_MASKED : WALK_SPREAD, rows, first, &lanes);
}

void moments_differentiate(const struct moments *m, const struct moments_gradient *g) {
  struct rows rows = {.x = g->x, .dy = g->dy, .to = g->dx};
  if (g->activation.kind != FUSED_NONE)
    rows.gate = gate_of(m, &g->activation);
  for (int64_t first = 0; first < m->channels; first += m->block)
    differentiate_block(m, g, rows, first);
}

/* Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: of a tensor of two dimensions or more the
   mean of the squared gradient is kept as that of each row and each column of its last two.

   A block may have a part of a matrix: then sums over a row that it cuts, and over all columns, are
   exchanged; matrices and rows that it has whole are its own business. */
#include <string.h>

#include "common/optim/optimizers/elementwise.h"
#include "common/optim/piece.h"
#include "common/optim/vector.h"

enum { CHUNK = 512 };

static const struct option_rule adafactor_options[] = {
    {.name = "beta2_decay", .range = OPTION_FINITE, .number = -0.8},
    {.name = "eps", .range = OPTION_ABOVE_0, .number = 0x1p-23}, /* of f32, as PyTorch's default is */
    {.name = "eps2", .range = OPTION_AT_LEAST_0, .number = 1e-3},
    {.name = "d", .range = OPTION_AT_LEAST_1, .number = 1},
    {.name = "weight_decay", .range = OPTION_AT_LEAST_0},
    {0},
};

static int adafactor_check(const Weir__OptimizerSpec *spec, const char *path, struct err *err) {
  if (spec->beta2_decay > 0)
    return err_set(err, ERR_INVALID, "%s.beta2_decay: must be at most 0", path);
  return 0;
}

static bool is_factored(const struct piece *piece) {
  return piece->shape.rank >= 2;
}

/* What a piece has of one matrix: elements one after another, from `column` of row `row` on. The state of a
   band is f32[n_rows], then f32[n_columns]: of the column of its first element, and so on around the matrix.
 */
struct band {
  uint64_t rows, columns;     /* of the matrix */
  uint64_t matrix, row;       /* numbers in the tensor: of the matrix, of the first row among all rows */
  uint64_t column;            /* in the matrix */
  uint32_t begin, elems;      /* in the piece */
  uint32_t n_rows, n_columns; /* that it touches */
  bool is_whole;
};

/* The band that begins at element `begin` of the piece. */
static struct band band_at(const struct piece *piece, uint32_t begin) {
  const struct shape *shape = &piece->shape;
  struct band band = {.rows = (uint64_t)shape->dim[shape->rank - 2],
                      .columns = (uint64_t)shape->dim[shape->rank - 1],
                      .begin = begin};
  uint64_t size = band.rows * band.columns, at = piece->offset + begin, within = at % size;
  uint64_t left = size - within;
  band.matrix = at / size;
  band.row = at / band.columns;
  band.column = at % band.columns;
  band.elems = left < piece->elems - begin ? (uint32_t)left : piece->elems - begin;
  band.n_rows = (uint32_t)((band.column + band.elems + band.columns - 1) / band.columns);
  band.n_columns = band.elems < band.columns ? band.elems : (uint32_t)band.columns;
  band.is_whole = band.elems == size;
  return band;
}

static uint32_t adafactor_state(const struct piece *piece) {
  uint32_t n = 0;
  if (!is_factored(piece))
    return piece->elems;
  for (uint32_t begin = 0; begin < piece->elems;) {
    struct band band = band_at(piece, begin);
    n += band.n_rows + band.n_columns;
    begin += band.elems;
  }
  return n;
}

static uint32_t adafactor_slots(const Weir__OptimizerSpec *spec) {
  (void)spec;
  return 1; /* of a tensor that is not factored */
}

/* Elements of the band in its row i: [*from, end). */
static uint32_t band_row(const struct band *band, uint32_t i, uint32_t *from) {
  uint64_t end = (i + 1) * band->columns - band->column;
  *from = i ? (uint32_t)(i * band->columns - band->column) : 0;
  return end < band->elems ? (uint32_t)end : band->elems;
}

static double band_row_sum(const struct band *band, uint32_t i, const float *grad) {
  uint32_t from, end = band_row(band, i, &from);
  return vector_sum_squares(grad + from, end - from);
}

/* sums f64[n] of the columns from the band's `first` on. */
VECTOR_VARIANTS static void band_column_sums(const struct band *band, const float *grad, uint32_t first,
                                             uint32_t n, double *sums) {
  memset(sums, 0, n * sizeof *sums);
  for (uint64_t at = first; at < band->elems; at += band->columns) {
    uint32_t have = band->elems - at < n ? (uint32_t)(band->elems - at) : n;
    const float *row = grad + at;
    for (uint32_t j = 0; j < have; j++)
      sums[j] += (double)row[j] * row[j];
  }
}

/* Where a matrix's values lie among the tensor's: the tensor's own (one), then of each matrix two, the sums
   of squared gradients and of the rows' state; then the rows, then the columns. */
static uint32_t band_windows(const struct band *band, const struct piece *piece,
                             struct optimizer_window *windows) {
  uint64_t rows_begin = 1 + 2 * (piece->tensor_elems / (band->rows * band->columns));
  uint64_t columns_begin = rows_begin + piece->tensor_elems / band->columns + band->matrix * band->columns;
  uint64_t to_edge = band->columns - band->column;
  uint32_t before = band->n_columns < to_edge ? band->n_columns : (uint32_t)to_edge, n = 0;
  windows[n++] = (struct optimizer_window){1 + 2 * band->matrix, 2};
  windows[n++] = (struct optimizer_window){rows_begin + band->row, 1};
  if (band->n_rows > 1)
    windows[n++] = (struct optimizer_window){rows_begin + band->row + band->n_rows - 1, 1};
  windows[n++] = (struct optimizer_window){columns_begin + band->column, before};
  if (before < band->n_columns)
    windows[n++] = (struct optimizer_window){columns_begin, band->n_columns - before};
  return n;
}

static uint32_t band_values(const struct band *band) {
  return band->is_whole ? 0 : 2 + (band->n_rows > 1 ? 2 : 1) + band->n_columns;
}

static uint32_t adafactor_windows(uint32_t phase, const struct piece *piece,
                                  struct optimizer_window windows[OPTIMIZER_WINDOWS_MAX]) {
  uint32_t n = 0;
  windows[n++] = (struct optimizer_window){0, 1};
  for (uint32_t begin = 0; phase == 0 && is_factored(piece) && begin < piece->elems;) {
    struct band band = band_at(piece, begin);
    if (!band.is_whole) /* two at most: a piece is a range */
      n += band_windows(&band, piece, &windows[n]);
    begin += band.elems;
  }
  return n;
}

/* In the order of its windows. state: of the band, before the step. */
static void band_sums(const struct band *band, const float *grad, const float *state, double *sums) {
  double kept = 0;
  for (uint32_t i = 0; i < band->n_rows; i++) /* each row once: in the band that has its first element */
    if (i > 0 || band->column == 0)
      kept += state[i];
  *sums++ = vector_sum_squares(grad, band->elems);
  *sums++ = kept;
  *sums++ = band_row_sum(band, 0, grad);
  if (band->n_rows > 1)
    *sums++ = band_row_sum(band, band->n_rows - 1, grad);
  band_column_sums(band, grad, 0, band->n_columns, sums);
}

/* The sum of row i's squares over the whole row. totals: of the band's windows, NULL of a whole one. */
static double band_row_total(const struct band *band, uint32_t i, const float *grad, const double *totals) {
  if (totals && i == 0)
    return totals[2];
  if (totals && i == band->n_rows - 1)
    return totals[3];
  return band_row_sum(band, i, grad);
}

/* A band's step: from the state before to the next one. */
struct band_step {
  const float *grad;
  const double *totals; /* of the band's windows, NULL of a whole one */
  float share;          /* of the way to what the gradient says */
  const float *state;
  float *next;
};

static void band_next_columns(const struct band *band, const struct band_step *step) {
  const float *state = step->state + band->n_rows;
  float *next = step->next + band->n_rows;
  double sums[CHUNK];
  for (uint32_t at = 0; at < band->n_columns; at += CHUNK) {
    uint32_t n = band->n_columns - at < CHUNK ? band->n_columns - at : CHUNK;
    const double *found = sums;
    if (step->totals)
      found = step->totals + 2 + (band->n_rows > 1 ? 2 : 1) + at;
    else
      band_column_sums(band, step->grad, at, n, sums);
    for (uint32_t j = 0; j < n; j++)
      next[at + j] = moved_towards(state[at + j], (float)(found[j] / (double)band->rows), step->share);
  }
}

/* The state after the step. What is returned is the mean of the rows' over the whole matrix. */
static double band_next_state(const struct band *band, const struct band_step *step) {
  const double *totals = step->totals;
  double mean = 0;
  for (uint32_t i = 0; i < band->n_rows; i++) {
    double total = band_row_total(band, i, step->grad, totals);
    step->next[i] = moved_towards(step->state[i], (float)(total / (double)band->columns), step->share);
    mean += step->next[i];
  }
  band_next_columns(band, step);
  if (totals)
    mean = (1.0 - step->share) * totals[1] + step->share * (totals[0] / (double)band->columns);
  return mean / (double)band->rows;
}

/* What the estimated mean of a gradient's square is of, besides its column. */
struct estimate {
  float row, least;
};

/* out f32[n]: the gradient by the root of the estimated mean of its square. */
VECTOR_VARIANTS static void scale_run(const float *grad, const float *column, struct estimate estimate,
                                      uint32_t n, float *out) {
  const float row = estimate.row, least = estimate.least;
#pragma GCC ivdep
  for (uint32_t j = 0; j < n; j++) {
    float variance = row * column[j];
    out[j] = grad[j] / sqrtf(variance > least ? variance : least);
  }
}

/* mean: of the next state's rows. */
static void band_scale(const struct band *band, const struct band_step *step, double mean,
                       const Weir__OptimizerSpec *spec, float *out) {
  const float *grad = step->grad, *state = step->next, *columns = state + band->n_rows;
  const float least = (float)(spec->eps * spec->eps);
  for (uint32_t i = 0; i < band->n_rows; i++) {
    uint32_t at, end = band_row(band, i, &at);
    float row = (float)(state[i] / (mean > spec->eps ? mean : spec->eps));
    while (at < end) { /* around the edge of the columns once */
      uint32_t j = (uint32_t)(at % band->columns);
      uint32_t n = end - at < band->n_columns - j ? end - at : band->n_columns - j;
      scale_run(grad + at, columns + j, (struct estimate){row, least}, n, out + at);
      at += n;
    }
  }
}

static float adafactor_share(const Weir__OptimizerSpec *spec, uint64_t step) {
  return (float)pow((double)(step + 1), spec->beta2_decay);
}

/* Drafts the update, unclipped and without a rate, in `out`, and the next state in the slots. */
static void adafactor_draft(const Weir__OptimizerSpec *spec, const struct optimizer_update *update) {
  const float share = adafactor_share(spec, update->step);
  const struct piece *piece = update->piece;
  const double *totals = update->totals[0] + 1;
  const float *state = update->slots;
  float *next = update->next_slots;
  if (!is_factored(piece)) {
    for (uint32_t i = 0; i < piece->elems; i++)
      next[i] = moved_towards(state[i], update->grad[i] * update->grad[i], share);
    scale_run(update->grad, next, (struct estimate){1, (float)(spec->eps * spec->eps)}, piece->elems,
              update->out);
    return;
  }
  for (uint32_t begin = 0; begin < piece->elems;) {
    struct band band = band_at(piece, begin);
    struct band_step step = {.grad = update->grad + begin,
                             .totals = band.is_whole ? NULL : totals,
                             .share = share,
                             .state = state,
                             .next = next};
    band_scale(&band, &step, band_next_state(&band, &step), spec, update->out + begin);
    totals += band_values(&band);
    state += band.n_rows + band.n_columns;
    next += band.n_rows + band.n_columns;
    begin += band.elems;
  }
}

static uint32_t adafactor_sums(const Weir__OptimizerSpec *spec, const struct optimizer_update *update,
                               uint32_t phase, double *sums) {
  const struct piece *piece = update->piece;
  const float *state = update->slots;
  uint32_t n = 1;
  if (phase == 1) {
    adafactor_draft(spec, update);
    sums[0] = vector_sum_squares(update->out, update->elems);
    return n;
  }
  sums[0] = vector_sum_squares(update->weights, update->elems);
  for (uint32_t begin = 0; is_factored(piece) && begin < piece->elems;) {
    struct band band = band_at(piece, begin);
    if (!band.is_whole)
      band_sums(&band, update->grad + begin, state, sums + n);
    n += band_values(&band);
    state += band.n_rows + band.n_columns;
    begin += band.elems;
  }
  return n;
}

VECTOR_VARIANTS static void adafactor_update(const Weir__OptimizerSpec *spec,
                                             const struct optimizer_update *update) {
  const double elems = (double)update->piece->tensor_elems, step = (double)(update->step + 1);
  const double rho = fmin(update->lr, 1 / sqrt(step));
  const double alpha = fmax(spec->eps2, sqrt(update->totals[0][0] / elems)) * rho;
  const float rate = (float)(alpha / fmax(1, sqrt(update->totals[1][0] / elems) / spec->d));
  const struct weight_decay decay = weight_decay_of(spec, update->lr, true);
  const uint32_t n = update->elems;
  const float *weights = update->weights;
  float *out = update->out;
#pragma GCC ivdep
  for (uint32_t i = 0; i < n; i++)
    out[i] = decay_weight(decay, weights[i]) - rate * out[i];
}

const struct optimizer_def optimizer_adafactor = {.name = "adafactor",
                                                  .options = adafactor_options,
                                                  .check = adafactor_check,
                                                  .slots = adafactor_slots,
                                                  .update = adafactor_update,
                                                  .n_phases = 2,
                                                  .has_drafts = true,
                                                  .state = adafactor_state,
                                                  .windows = adafactor_windows,
                                                  .sums = adafactor_sums};

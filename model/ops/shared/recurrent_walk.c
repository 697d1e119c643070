/* The walk of LSTM, GRU and RNN over time, and back. A sequence that has ended keeps its state: its rows are
   computed with the others' and ignored. */
#include <math.h>
#include <string.h>

#include "model/ops/shared/recurrent.h"

static int64_t rows_of(const struct recurrent *shape) {
  return shape->steps * shape->batch;
}

static int64_t state_elems(const struct recurrent *shape) {
  return shape->batch * shape->hidden;
}

int64_t recurrent_record_elems(const struct recurrent *shape) {
  int matrices = shape->cell->gates + 1 + shape->cell->has_c + shape->cell->n_kept;
  return rows_of(shape) * shape->hidden * matrices;
}

struct matrix recurrent_columns(const struct recurrent_pass *pass, const float *data, int64_t cols,
                                int64_t from, int64_t n) {
  return (struct matrix){data + from, rows_of(pass->shape), n, cols, 1};
}

struct matrix recurrent_at_step(const struct recurrent_pass *pass, struct matrix rows, int64_t t) {
  rows.data += recurrent_row(pass->shape, t, 0) * rows.row_stride;
  rows.rows = pass->shape->batch;
  rows.row_stride *= recurrent_row_step(pass->shape);
  return rows;
}

/* R, [gh,h]. */
static struct matrix state_weights(const struct recurrent_pass *pass) {
  int64_t h = pass->shape->hidden;
  return (struct matrix){pass->r, pass->shape->cell->gates * h, h, h, 1};
}

static struct matrix gate_grads(const struct recurrent_pass *pass) {
  int64_t gates = pass->shape->cell->gates * pass->shape->hidden;
  return recurrent_columns(pass, pass->d_gates, gates, 0, gates);
}

void recurrent_add_states(const struct recurrent_pass *pass, int64_t t) {
  int64_t h = pass->shape->hidden, gates = pass->shape->cell->gates * h;
  struct matrix states = {pass->h, pass->shape->batch, h, h, 1};
  pass->math->multiply(states, matrix_transposed(state_weights(pass)), true,
                       pass->gates + recurrent_row(pass->shape, t, 0) * gates,
                       recurrent_row_step(pass->shape) * gates);
}

void recurrent_add_state_grads(const struct recurrent_pass *pass, int64_t t) {
  pass->math->multiply(recurrent_at_step(pass, gate_grads(pass), t), state_weights(pass), true, pass->h,
                       pass->shape->hidden);
}

void recurrent_sum_r(const struct recurrent_pass *pass, float *d_r) {
  int64_t h = pass->shape->hidden;
  pass->math->multiply(matrix_transposed(gate_grads(pass)), recurrent_columns(pass, pass->h_before, h, 0, h),
                       false, d_r, h);
}

void recurrent_activate(const struct recurrent_pass *pass, int function, float *x, int64_t n) {
  float clip = pass->shape->clip;
  for (int64_t j = 0; j < n && isfinite(clip); j++)
    x[j] = x[j] < -clip ? -clip : x[j] > clip ? clip : x[j];
  pass->math->activate(&pass->functions[function], x, n);
}

void recurrent_derive(const struct recurrent_pass *pass, int function, const float *y, float *grad,
                      int64_t n) {
  const float *clipped = pass->clipped[function];
  activation_derive(&pass->functions[function], y, grad, n);
  for (int64_t j = 0; j < n && isfinite(pass->shape->clip); j++)
    if (y[j] == clipped[0] || y[j] == clipped[1])
      grad[j] = 0.0f;
}

/* Where direction d's part of a tensor begins, of `elems` each; NULL where it is absent. */
static const float *direction_part(const void *tensor, int64_t d, int64_t elems) {
  return tensor ? (const float *)tensor + d * elems : NULL;
}

/* Direction d's record: what the forward node kept, keeps for others, or for now. */
static float *record_of(const struct recurrent *shape, const struct recurrent_io *io, int64_t d) {
  int64_t elems = recurrent_record_elems(shape);
  if (io->in[RECURRENT_RECORD])
    return (float *)io->in[RECURRENT_RECORD] + d * elems;
  return io->record ? io->record + d * elems : io->scratch + 2 * state_elems(shape);
}

static void pass_init(struct recurrent_pass *pass, const struct recurrent *shape,
                      const struct recurrent_math *math, const struct recurrent_io *io, int64_t d) {
  int64_t h = shape->hidden, gates = shape->cell->gates * h, rows = rows_of(shape);
  float *record = record_of(shape, io, d);
  *pass = (struct recurrent_pass){.shape = shape,
                                  .math = math,
                                  .functions = shape->functions[d],
                                  .is_reverse = shape->is_reverse || d == 1,
                                  .r = direction_part(io->in[RECURRENT_R], d, gates * h),
                                  .bias = direction_part(io->in[RECURRENT_B], d, 2 * gates),
                                  .p = direction_part(io->in[RECURRENT_P], d, 3 * h),
                                  .lengths = io->in[RECURRENT_LENGTHS],
                                  .gates = record,
                                  .h_before = record + rows * gates,
                                  .h = io->scratch,
                                  .c = io->scratch + state_elems(shape)};
  pass->c_before = pass->h_before + rows * h;
  pass->kept = pass->c_before + (shape->cell->has_c ? rows * h : 0);
  for (int f = 0; f < shape->cell->n_functions && isfinite(shape->clip); f++)
    for (int side = 0; side < 2; side++) {
      pass->clipped[f][side] = side ? shape->clip : -shape->clip;
      math->activate(&pass->functions[f], &pass->clipped[f][side], 1);
    }
}

/* Sequence b's state in an input or output of the node. */
static float *state_of(const struct recurrent *shape, const void *states, int64_t d, int64_t b) {
  int64_t at = shape->is_batch_first ? b * shape->directions + d : d * shape->batch + b;
  return (float *)states + at * shape->hidden;
}

/* Direction d's states, dense [b,h]; zero where the input is absent. */
static void state_read(const struct recurrent *shape, const void *states, int64_t d, float *to) {
  size_t row = (size_t)shape->hidden * sizeof *to;
  for (int64_t b = 0; b < shape->batch; b++)
    if (states)
      memcpy(to + b * shape->hidden, state_of(shape, states, d, b), row);
    else
      memset(to + b * shape->hidden, 0, row);
}

static void state_write(const struct recurrent *shape, float *states, int64_t d, const float *from) {
  for (int64_t b = 0; b < shape->batch && states; b++)
    memcpy(state_of(shape, states, d, b), from + b * shape->hidden, (size_t)shape->hidden * sizeof *from);
}

/* Keeps the state before step t. */
static void state_keep(const struct recurrent_pass *pass, int64_t t, const float *state, float *kept) {
  int64_t h = pass->shape->hidden;
  for (int64_t b = 0; b < pass->shape->batch; b++)
    memcpy(kept + recurrent_row(pass->shape, t, b) * h, state + b * h, (size_t)h * sizeof *state);
}

/* Where Y, or its gradient, has step t of sequence b. */
static int64_t sequence_at(const struct recurrent *shape, int64_t t, int64_t d, int64_t b) {
  int64_t row = shape->is_batch_first ? (b * shape->steps + t) * shape->directions + d
                                      : (t * shape->directions + d) * shape->batch + b;
  return row * shape->hidden;
}

static void sequence_write(const struct recurrent_pass *pass, int64_t t, int64_t d, float *y) {
  const struct recurrent *shape = pass->shape;
  size_t row = (size_t)shape->hidden * sizeof *y;
  for (int64_t b = 0; b < shape->batch && y; b++)
    if (recurrent_is_live(pass, t, b))
      memcpy(y + sequence_at(shape, t, d, b), pass->h + b * shape->hidden, row);
    else
      memset(y + sequence_at(shape, t, d, b), 0, row);
}

/* Row 0 of the gates = what the biases add up to. With linear_before_reset the last gate's is added within.
 */
static void sum_biases(const struct recurrent_pass *pass) {
  int64_t gates = pass->shape->cell->gates * pass->shape->hidden;
  bool is_apart = pass->shape->cell->has_inner_bias && pass->shape->is_linear_first;
  int64_t common = is_apart ? gates - pass->shape->hidden : gates;
  for (int64_t j = 0; j < gates; j++)
    pass->gates[j] = j < common ? pass->bias[j] + pass->bias[gates + j] : pass->bias[j];
}

/* The gates' part that does not depend on the state, of all steps at once: X W' and the bias. */
static void project_input(const struct recurrent_pass *pass, const float *x, const float *w) {
  const struct recurrent *shape = pass->shape;
  int64_t rows = rows_of(shape), gates = shape->cell->gates * shape->hidden;
  struct matrix inputs = {x, rows, shape->input, shape->input, 1};
  struct matrix weights = {w, gates, shape->input, shape->input, 1};
  if (pass->bias)
    sum_biases(pass);
  for (int64_t row = 1; row < rows && pass->bias; row++)
    memcpy(pass->gates + row * gates, pass->gates, (size_t)gates * sizeof *x);
  pass->math->multiply(inputs, matrix_transposed(weights), pass->bias != NULL, pass->gates, gates);
}

static int64_t step_at(const struct recurrent_pass *pass, int64_t s) {
  return pass->is_reverse ? pass->shape->steps - 1 - s : s;
}

static int check_lengths(const struct recurrent *shape, const int32_t *lengths, const struct node *node,
                         struct err *err) {
  for (int64_t b = 0; b < shape->batch && lengths; b++)
    if (lengths[b] < 0 || lengths[b] > shape->steps)
      return node_error(node, err, ERR_INVALID,
                        "sequence_lens holds %d for sequence %lld; there are %lld steps", (int)lengths[b],
                        (long long)b, (long long)shape->steps);
  return ERR_OK;
}

int recurrent_forward(const struct recurrent *shape, const struct recurrent_math *math,
                      const struct recurrent_io *io, const struct node *node, struct err *err) {
  int64_t gates = shape->cell->gates * shape->hidden;
  if (check_lengths(shape, io->in[RECURRENT_LENGTHS], node, err))
    return err->code;
  for (int64_t d = 0; d < shape->directions; d++) {
    struct recurrent_pass pass;
    pass_init(&pass, shape, math, io, d);
    state_read(shape, io->in[RECURRENT_H], d, pass.h);
    state_read(shape, io->in[RECURRENT_C], d, pass.c);
    project_input(&pass, io->in[RECURRENT_X], direction_part(io->in[RECURRENT_W], d, gates * shape->input));
    for (int64_t s = 0; s < shape->steps; s++) {
      int64_t t = step_at(&pass, s);
      state_keep(&pass, t, pass.h, pass.h_before);
      if (shape->cell->has_c)
        state_keep(&pass, t, pass.c, pass.c_before);
      shape->cell->step(&pass, t);
      sequence_write(&pass, t, d, io->y);
    }
    state_write(shape, io->y_h, d, pass.h);
    state_write(shape, io->y_c, d, pass.c);
  }
  return ERR_OK;
}

/* Adds the gradient that step t's output has by itself. */
static void sequence_add(const struct recurrent_pass *pass, int64_t t, int64_t d, const float *dy) {
  const struct recurrent *shape = pass->shape;
  for (int64_t b = 0; b < shape->batch && dy; b++) {
    const float *from = dy + sequence_at(shape, t, d, b);
    float *to = pass->h + b * shape->hidden;
    for (int64_t j = 0; j < shape->hidden && recurrent_is_live(pass, t, b); j++)
      to[j] += from[j];
  }
}

/* sums[cols] = the sums of a matrix's columns, in f64, a few at a time. */
static void sum_columns(struct matrix matrix, float *sums) {
  enum { AT_ONCE = 64 };
  for (int64_t from = 0; from < matrix.cols; from += AT_ONCE) {
    int64_t n = matrix.cols - from < AT_ONCE ? matrix.cols - from : AT_ONCE;
    double part_sums[AT_ONCE] = {0};
    for (int64_t row = 0; row < matrix.rows; row++)
      for (int64_t j = 0; j < n; j++)
        part_sums[j] += matrix.data[row * matrix.row_stride + from + j];
    for (int64_t j = 0; j < n; j++)
      sums[from + j] = (float)part_sums[j];
  }
}

/* From the gradients of the gates in all steps to those of what does not depend on the steps. */
static void finish_back(const struct recurrent_pass *pass, const struct recurrent_io *io, int64_t d) {
  const struct recurrent *shape = pass->shape;
  int64_t gates = shape->cell->gates * shape->hidden, h = shape->hidden;
  struct matrix d_gates = gate_grads(pass);
  struct matrix x = {io->in[RECURRENT_X], rows_of(shape), shape->input, shape->input, 1};
  struct matrix w = {direction_part(io->in[RECURRENT_W], d, gates * shape->input), gates, shape->input,
                     shape->input, 1};
  float *d_w = io->grads[RECURRENT_W], *d_r = io->grads[RECURRENT_R], *d_b = io->grads[RECURRENT_B];
  if (io->grads[RECURRENT_X])
    pass->math->multiply(d_gates, w, d > 0, io->grads[RECURRENT_X], shape->input);
  if (d_w)
    pass->math->multiply(matrix_transposed(d_gates), x, false, d_w + d * gates * shape->input, shape->input);
  if (d_r)
    shape->cell->sum_r(pass, d_r + d * gates * h);
  if (!d_b)
    return;
  d_b += d * 2 * gates;
  sum_columns(d_gates, d_b);
  memcpy(d_b + gates, d_b, (size_t)gates * sizeof *d_b);
  if (shape->cell->has_inner_bias && shape->is_linear_first)
    sum_columns(recurrent_columns(pass, pass->d_kept, h, 0, h), d_b + 2 * gates - h);
}

void recurrent_backward(const struct recurrent *shape, const struct recurrent_math *math,
                        const struct recurrent_io *io) {
  int64_t h = shape->hidden, states = state_elems(shape);
  for (int64_t d = 0; d < shape->directions; d++) {
    struct recurrent_pass pass;
    pass_init(&pass, shape, math, io, d);
    pass.d_spare = pass.c + states;
    pass.d_gates = pass.d_spare + states;
    pass.d_kept = pass.d_gates + rows_of(shape) * shape->cell->gates * h;
    pass.d_p = io->grads[RECURRENT_P] ? io->grads[RECURRENT_P] + d * 3 * h : NULL;
    if (pass.d_p)
      memset(pass.d_p, 0, 3 * (size_t)h * sizeof *pass.d_p);
    state_read(shape, io->in[RECURRENT_DY_H], d, pass.h);
    state_read(shape, io->in[RECURRENT_DY_C], d, pass.c);
    for (int64_t s = shape->steps - 1; s >= 0; s--) {
      int64_t t = step_at(&pass, s);
      sequence_add(&pass, t, d, io->in[RECURRENT_DY]);
      shape->cell->step_back(&pass, t);
    }
    state_write(shape, io->grads[RECURRENT_H], d, pass.h);
    state_write(shape, io->grads[RECURRENT_C], d, pass.c);
    finish_back(&pass, io, d);
  }
}

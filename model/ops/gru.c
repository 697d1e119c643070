/* GRU (ONNX 7..14) and its gradient. Gates in the order of ONNX: update z, reset r, hidden n. With
   linear_before_reset (PyTorch's GRU) the reset gate scales the hidden gate's product with R, else the state
   that goes into it. The record keeps that product, or that state. */
#include <string.h>

#include "model/ops/shared/recurrent.h"

enum { UPDATE, RESET, HIDDEN, GATES }; /* gates */
enum { F, G };                         /* functions: of update and reset, of hidden */

/* R's rows of gates [from, to). */
static struct matrix weights_of(const struct recurrent_pass *pass, int from, int to) {
  int64_t n = pass->shape->hidden;
  return (struct matrix){pass->r + from * n * n, (to - from) * n, n, n, 1};
}

static struct matrix states_of(const struct recurrent_pass *pass, const float *states) {
  int64_t n = pass->shape->hidden;
  return (struct matrix){states, pass->shape->batch, n, n, 1};
}

/* kept = h R' + bias, of the hidden gate; n += r kept */
static void linear_first(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  const float *bias = pass->bias ? pass->bias + (GATES + HIDDEN) * n : NULL;
  pass->math->multiply(states_of(pass, pass->h), matrix_transposed(weights_of(pass, HIDDEN, GATES)), false,
                       pass->kept + recurrent_row(pass->shape, t, 0) * n,
                       recurrent_row_step(pass->shape) * n);
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    float *kept = pass->kept + row * n, *gates = pass->gates + row * GATES * n;
    for (int64_t j = 0; j < n && bias; j++)
      kept[j] += bias[j];
    for (int64_t j = 0; j < n; j++)
      gates[HIDDEN * n + j] += gates[RESET * n + j] * kept[j];
  }
}

/* kept = r h; n += kept R' */
static void reset_first(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    const float *r = pass->gates + row * GATES * n + RESET * n, *h = pass->h + b * n;
    for (int64_t j = 0; j < n; j++)
      pass->kept[row * n + j] = r[j] * h[j];
  }
  pass->math->multiply(recurrent_at_step(pass, recurrent_columns(pass, pass->kept, n, 0, n), t),
                       matrix_transposed(weights_of(pass, HIDDEN, GATES)), true,
                       pass->gates + recurrent_row(pass->shape, t, 0) * GATES * n + HIDDEN * n,
                       recurrent_row_step(pass->shape) * GATES * n);
}

static void gru_step(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  pass->math->multiply(states_of(pass, pass->h), matrix_transposed(weights_of(pass, UPDATE, HIDDEN)), true,
                       pass->gates + recurrent_row(pass->shape, t, 0) * GATES * n,
                       recurrent_row_step(pass->shape) * GATES * n);
  for (int64_t b = 0; b < pass->shape->batch; b++)
    recurrent_activate(pass, F, pass->gates + recurrent_row(pass->shape, t, b) * GATES * n, HIDDEN * n);
  if (pass->shape->is_linear_first)
    linear_first(pass, t);
  else
    reset_first(pass, t);
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    float *gates = pass->gates + recurrent_row(pass->shape, t, b) * GATES * n, *h = pass->h + b * n;
    recurrent_activate(pass, G, gates + HIDDEN * n, n);
    for (int64_t j = 0; j < n && recurrent_is_live(pass, t, b); j++)
      h[j] = (1.0f - gates[j]) * gates[HIDDEN * n + j] + gates[j] * h[j];
  }
}

/* One sequence: the gradients of the sums of update and hidden, and dh's part through the state itself. */
static void backward_row(const struct recurrent_pass *pass, int64_t row, float *dh) {
  int64_t n = pass->shape->hidden;
  const float *z = pass->gates + row * GATES * n, *hidden = z + HIDDEN * n, *h = pass->h_before + row * n;
  float *dz = pass->d_gates + row * GATES * n, *d_hidden = dz + HIDDEN * n;
  for (int64_t j = 0; j < n; j++) {
    dz[j] = dh[j] * (h[j] - hidden[j]);
    d_hidden[j] = dh[j] * (1.0f - z[j]);
    dh[j] *= z[j];
  }
  recurrent_derive(pass, F, z, dz, n);
  recurrent_derive(pass, G, hidden, d_hidden, n);
}

/* The reset gate's, where it scaled the product: d_kept is the gradient of that. */
static void linear_first_row(const struct recurrent_pass *pass, int64_t row) {
  int64_t n = pass->shape->hidden;
  const float *r = pass->gates + row * GATES * n + RESET * n, *kept = pass->kept + row * n;
  float *dr = pass->d_gates + row * GATES * n + RESET * n, *d_hidden = dr + n;
  for (int64_t j = 0; j < n; j++) {
    dr[j] = d_hidden[j] * kept[j];
    pass->d_kept[row * n + j] = d_hidden[j] * r[j];
  }
  recurrent_derive(pass, F, r, dr, n);
}

/* The reset gate's, where it scaled the state: d_scaled is the gradient of that. */
static void reset_first_row(const struct recurrent_pass *pass, int64_t row, const float *d_scaled,
                            float *dh) {
  int64_t n = pass->shape->hidden;
  const float *r = pass->gates + row * GATES * n + RESET * n, *h = pass->h_before + row * n;
  float *dr = pass->d_gates + row * GATES * n + RESET * n;
  for (int64_t j = 0; j < n; j++) {
    dr[j] = d_scaled[j] * h[j];
    dh[j] += d_scaled[j] * r[j];
  }
  recurrent_derive(pass, F, r, dr, n);
}

static void clear_row(const struct recurrent_pass *pass, int64_t row) {
  size_t size = (size_t)pass->shape->hidden * sizeof *pass->d_gates;
  memset(pass->d_gates + row * GATES * pass->shape->hidden, 0, GATES * size);
  memset(pass->d_kept + row * pass->shape->hidden, 0, size);
}

static void gru_step_back(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  bool is_linear_first = pass->shape->is_linear_first;
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    if (!recurrent_is_live(pass, t, b)) {
      clear_row(pass, row);
      continue;
    }
    backward_row(pass, row, pass->h + b * n);
    if (is_linear_first)
      linear_first_row(pass, row);
  }
  if (is_linear_first) {
    pass->math->multiply(recurrent_at_step(pass, recurrent_columns(pass, pass->d_kept, n, 0, n), t),
                         weights_of(pass, HIDDEN, GATES), true, pass->h, n);
  } else {
    pass->math->multiply(
        recurrent_at_step(pass, recurrent_columns(pass, pass->d_gates, GATES * n, HIDDEN * n, n), t),
        weights_of(pass, HIDDEN, GATES), false, pass->d_spare, n);
    for (int64_t b = 0; b < pass->shape->batch; b++)
      if (recurrent_is_live(pass, t, b))
        reset_first_row(pass, recurrent_row(pass->shape, t, b), pass->d_spare + b * n, pass->h + b * n);
  }
  pass->math->multiply(
      recurrent_at_step(pass, recurrent_columns(pass, pass->d_gates, GATES * n, 0, HIDDEN * n), t),
      weights_of(pass, UPDATE, HIDDEN), true, pass->h, n);
}

static void gru_sum_r(const struct recurrent_pass *pass, float *d_r) {
  int64_t n = pass->shape->hidden;
  bool is_linear_first = pass->shape->is_linear_first;
  struct matrix d_gates = recurrent_columns(pass, pass->d_gates, GATES * n, 0, HIDDEN * n);
  struct matrix d_hidden = is_linear_first ? recurrent_columns(pass, pass->d_kept, n, 0, n)
                                           : recurrent_columns(pass, pass->d_gates, GATES * n, HIDDEN * n, n);
  struct matrix before = recurrent_columns(pass, pass->h_before, n, 0, n);
  struct matrix kept = recurrent_columns(pass, pass->kept, n, 0, n);
  pass->math->multiply(matrix_transposed(d_gates), before, false, d_r, n);
  pass->math->multiply(matrix_transposed(d_hidden), is_linear_first ? before : kept, false,
                       d_r + HIDDEN * n * n, n);
}

const struct recurrent_cell recurrent_gru = {
    .name = "GRU",
    .grad = "GRUGrad",
    .gates = GATES,
    .n_kept = 1,
    .n_functions = 2,
    .defaults = {"Sigmoid", "Tanh"},
    .has_inner_bias = true,
    .step = gru_step,
    .step_back = gru_step_back,
    .sum_r = gru_sum_r,
};

static const struct op_case gru_cases[] = {
    {.inputs = "f32[3,2,4] f32[1,9,4] f32[1,9,3]", .outputs = 2},
    {.inputs = "f32[3,2,2] f32[1,9,2] f32[1,9,3] f32[1,18] - f32[1,2,3]",
     .attrs = "linear_before_reset=1 hidden_size=3",
     .outputs = 2},
    {.inputs = "f32[3,2,2] f32[2,9,2] f32[2,9,3] f32[2,18] i32[2]=3,1 f32[2,2,3]",
     .attrs = "direction=bidirectional",
     .outputs = 2},
    {.inputs = "f32[3,2,2] f32[2,9,2] f32[2,9,3] f32[2,18] i32[2]=0,2 f32[2,2,3]",
     .attrs = "direction=bidirectional linear_before_reset=1",
     .outputs = 2},
    {.inputs = "f32[2,3,2] f32[1,6,2] f32[1,6,2] f32[1,12] i32[2]=3,1 f32[2,1,2]",
     .attrs = "direction=reverse layout=1",
     .outputs = 2},
    {.inputs = "f32[3,2,2] f32[1,9,2] f32[1,9,3] f32[1,18]",
     .attrs = "clip=0.4f",
     .outputs = 2,
     .is_not_smooth = true},
    {.inputs = "f32[t,b,i] f32[1,h*3,i] f32[1,h*3,h] f32[1,h*6] - f32[1,b,h]",
     .attrs = "linear_before_reset=l direction=r",
     .draw = "t=1..4 b=1..3 i=1..3 h=1..4 l=0|1 r=forward|reverse",
     .outputs = 2},
    {0},
};

RECURRENT_GRADIENT(gru, "GRUGrad")

const struct op_def op_GRU = {
    .name = "GRU",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 6,
    .min_outputs = 0,
    .max_outputs = 2,
    .min_opset = 7,
    .infer = recurrent_infer,
    .backward = recurrent_add_grad,
    .ref = recurrent_ref,
    .multiply_adds = recurrent_multiply_adds,
    .cases = gru_cases,
    .gradients = gru_gradients,
};

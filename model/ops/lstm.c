/* LSTM (ONNX 7..14) and its gradient. Gates in the order of ONNX: input, output, forget, cell; peepholes:
   input, output, forget. */
#include <string.h>

#include "model/ops/shared/recurrent.h"

enum { INPUT, OUTPUT, FORGET, CELL, GATES }; /* gates */
enum { F, G, H };                            /* functions: of gates, of the cell gate, of the cell */

/* a += b * c */
static void add_product(float *a, const float *b, const float *c, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    a[j] += b[j] * c[j];
}

/* One sequence: gates [4h] in as sums, out as activations; states h and c in and out; kept = H(c). */
static void forward_row(const struct recurrent_pass *pass, float *gates, float *h, float *c, float *kept) {
  int64_t n = pass->shape->hidden;
  float *i = gates, *o = gates + OUTPUT * n, *f = gates + FORGET * n, *g = gates + CELL * n;
  if (pass->p) {
    add_product(i, pass->p, c, n);
    add_product(f, pass->p + FORGET * n, c, n);
  }
  recurrent_activate(pass, F, i, n);
  recurrent_activate(pass, G, g, n);
  if (pass->shape->is_coupled)
    for (int64_t j = 0; j < n; j++)
      f[j] = 1.0f - i[j];
  else
    recurrent_activate(pass, F, f, n);
  for (int64_t j = 0; j < n; j++)
    kept[j] = c[j] = f[j] * c[j] + i[j] * g[j];
  if (pass->p)
    add_product(o, pass->p + OUTPUT * n, c, n);
  recurrent_activate(pass, F, o, n);
  pass->math->activate(&pass->functions[H], kept, n);
  for (int64_t j = 0; j < n; j++)
    h[j] = o[j] * kept[j];
}

static void lstm_step(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  recurrent_add_states(pass, t);
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    float *kept = pass->kept + row * n;
    if (recurrent_is_live(pass, t, b))
      forward_row(pass, pass->gates + row * GATES * n, pass->h + b * n, pass->c + b * n, kept);
    else
      memset(kept, 0, (size_t)n * sizeof *kept);
  }
}

/* The gradients of the peepholes, from those of the gates' sums. */
static void add_peepholes(const struct recurrent_pass *pass, const float *gates, const float *c,
                          const float *d_gates) {
  int64_t n = pass->shape->hidden;
  const float *i = gates, *f = gates + FORGET * n, *g = gates + CELL * n;
  float *d_p = pass->d_p;
  for (int64_t j = 0; j < n; j++) {
    d_p[j] += d_gates[j] * c[j];
    d_p[OUTPUT * n + j] += d_gates[OUTPUT * n + j] * (f[j] * c[j] + i[j] * g[j]);
    d_p[FORGET * n + j] += d_gates[FORGET * n + j] * c[j];
  }
}

/* One sequence: c, the state before; dh and dc, the gradients of the states behind, dc made that of the state
   before. dh's comes from the gates' gradients. */
static void backward_row(const struct recurrent_pass *pass, int64_t row, const float *dh, float *dc) {
  int64_t n = pass->shape->hidden;
  const float *gates = pass->gates + row * GATES * n, *c = pass->c_before + row * n;
  const float *i = gates, *o = gates + OUTPUT * n, *f = gates + FORGET * n, *g = gates + CELL * n;
  const float *kept = pass->kept + row * n;
  float *d_gates = pass->d_gates + row * GATES * n;
  float *di = d_gates, *d_o = d_gates + OUTPUT * n, *df = d_gates + FORGET * n, *dg = d_gates + CELL * n;
  bool is_coupled = pass->shape->is_coupled;
  for (int64_t j = 0; j < n; j++) {
    d_o[j] = dh[j] * kept[j];
    dg[j] = dh[j] * o[j]; /* for now of the cell, through H */
  }
  recurrent_derive(pass, F, o, d_o, n);
  activation_derive(&pass->functions[H], kept, dg, n);
  for (int64_t j = 0; j < n; j++)
    dc[j] += dg[j];
  if (pass->p)
    add_product(dc, d_o, pass->p + OUTPUT * n, n);
  for (int64_t j = 0; j < n; j++) {
    di[j] = dc[j] * (is_coupled ? g[j] - c[j] : g[j]);
    df[j] = is_coupled ? 0.0f : dc[j] * c[j];
    dg[j] = dc[j] * i[j];
    dc[j] *= f[j];
  }
  recurrent_derive(pass, F, i, di, n);
  recurrent_derive(pass, F, f, df, n);
  recurrent_derive(pass, G, g, dg, n);
  if (pass->p) {
    add_product(dc, di, pass->p, n);
    add_product(dc, df, pass->p + FORGET * n, n);
  }
  if (pass->d_p)
    add_peepholes(pass, gates, c, d_gates);
}

static void lstm_step_back(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    float *dh = pass->h + b * n;
    if (recurrent_is_live(pass, t, b)) {
      backward_row(pass, row, dh, pass->c + b * n);
      memset(dh, 0, (size_t)n * sizeof *dh);
    } else {
      memset(pass->d_gates + row * GATES * n, 0, GATES * (size_t)n * sizeof *dh);
    }
  }
  recurrent_add_state_grads(pass, t);
}

const struct recurrent_cell recurrent_lstm = {
    .name = "LSTM",
    .grad = "LSTMGrad",
    .gates = GATES,
    .n_kept = 1,
    .n_functions = 3,
    .defaults = {"Sigmoid", "Tanh", "Tanh"},
    .has_c = true,
    .step = lstm_step,
    .step_back = lstm_step_back,
    .sum_r = recurrent_sum_r,
};

static const struct op_case lstm_cases[] = {
    {.inputs = "f32[3,2,4] f32[1,12,4] f32[1,12,3]", .outputs = 3},
    {.inputs = "f32[3,2,2] f32[1,12,2] f32[1,12,3] f32[1,24] - f32[1,2,3] f32[1,2,3]",
     .attrs = "hidden_size=3",
     .outputs = 3},
    {.inputs = "f32[3,2,2] f32[2,12,2] f32[2,12,3] f32[2,24] i32[2]=3,1 f32[2,2,3] f32[2,2,3] f32[2,9]",
     .attrs = "direction=bidirectional",
     .outputs = 3},
    {.inputs = "f32[3,2,2] f32[1,12,2] f32[1,12,3] f32[1,24] i32[2]=2,0 f32[1,2,3] f32[1,2,3] f32[1,9]",
     .attrs = "direction=reverse input_forget=1",
     .outputs = 3},
    {.inputs = "f32[2,3,2] f32[2,8,2] f32[2,8,2] f32[2,16] i32[2]=3,1 f32[2,2,2] f32[2,2,2]",
     .attrs = "direction=bidirectional layout=1",
     .outputs = 3},
    {.inputs = "f32[3,2,2] f32[1,12,2] f32[1,12,3] f32[1,24]",
     .attrs = "activations=HardSigmoid;Softsign;Affine activation_alpha=0.1f,0.5f",
     .outputs = 3},
    {.inputs = "f32[3,2,2] f32[1,12,2] f32[1,12,3] f32[1,24] - - - f32[1,9]",
     .attrs = "clip=0.4f",
     .outputs = 3,
     .is_not_smooth = true},
    {.inputs = "f32[t,b,i] f32[1,h*4,i] f32[1,h*4,h] f32[1,h*8] - f32[1,b,h] f32[1,b,h] f32[1,h*3]",
     .attrs = "input_forget=f direction=r",
     .draw = "t=1..4 b=1..3 i=1..3 h=1..4 f=0|1 r=forward|reverse",
     .outputs = 3},
    {0},
};

RECURRENT_GRADIENT(lstm, "LSTMGrad")

const struct op_def op_LSTM = {
    .name = "LSTM",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 8,
    .min_outputs = 0,
    .max_outputs = 3,
    .min_opset = 7,
    .infer = recurrent_infer,
    .backward = recurrent_add_grad,
    .ref = recurrent_ref,
    .multiply_adds = recurrent_multiply_adds,
    .cases = lstm_cases,
    .gradients = lstm_gradients,
};

/* LSTM, GRU and RNN and their gradients: the walk of model/ops/shared/recurrent_walk.c over time, its
   products by cuBLASLt, its cells by kernels of our own. All that a step enqueues is captured with the rest
   of the graph.
 */
#include "worker/backend/cuda/recurrent/recurrent.h"

#include <string.h>

#include "model/ops/shared/recurrent.h"
#include "worker/backend/cuda/product/matrix.h"
#include "worker/backend/cuda/product/product.h"

/* Products, by what they make. */
enum {
  GATES_OF_X, /* gates += X W' */
  GATES_OF_H, /* gates(t) += h R', of all gates but GRU's hidden one */
  HIDDEN,     /* GRU: kept(t) = h R', or hidden gate(t) += kept(t) R' */
  DH,         /* dh += d_gates(t) R, likewise */
  D_HIDDEN,   /* GRU: dh += d_kept(t) R, or d_spare = d_hidden(t) R */
  DX,         /* dX = d_gates W */
  DX_MORE,    /* dX += d_gates W, of the second direction */
  DW,         /* dW = d_gates' X */
  DR,         /* dR = d_gates' h */
  DR_HIDDEN,  /* GRU: dR = d_kept' h, or d_hidden' kept */
  PRODUCTS
};

enum {
  SCRATCH_STATES,
  SCRATCH_RECORD,
  SCRATCH_GRADS,
  SCRATCH_PEEPHOLES,
  SCRATCH_SUMS,
  SCRATCH_WORK,
  SCRATCHES
};

struct details {
  struct recurrent shape;
  bool is_backward;
  int out; /* first argument of outputs; those of inputs are the first of all */
  int n_in, n_out;
  int scratch[SCRATCHES]; /* arguments; -1: none */
  struct cuda_product *products[PRODUCTS];
};

static int64_t rows_of(const struct recurrent *shape) {
  return shape->steps * shape->batch;
}

static int64_t width_of(const struct recurrent *shape) {
  return shape->cell->gates * shape->hidden;
}

static bool is_gru(const struct recurrent *shape) {
  return shape->cell->has_inner_bias;
}

/* The gates that are linear in the state: all but GRU's hidden one. */
static int64_t plain_width(const struct recurrent *shape) {
  return width_of(shape) - (is_gru(shape) ? shape->hidden : 0);
}

/* The greatest power of two that divides it, at most 256. */
static unsigned alignment_of(int64_t bytes) {
  unsigned align_bytes = 256;
  while (bytes % align_bytes != 0)
    align_bytes /= 2;
  return align_bytes;
}

/* A matrix [rows, columns] whose rows are `stride` elements apart, at a multiple of `unit` elements. */
static struct cuda_matrix rows_view(int64_t rows, int64_t columns, int64_t stride, int64_t unit) {
  return (struct cuda_matrix){.type = CUDA_F32,
                              .rows = rows,
                              .columns = columns,
                              .stack_stride = rows * stride,
                              .row_stride = stride,
                              .column_stride = 1,
                              .align_bytes = alignment_of(unit * 4)};
}

static struct cuda_matrix view_transposed(struct cuda_matrix m) {
  struct cuda_matrix t = m;
  t.rows = m.columns;
  t.columns = m.rows;
  t.row_stride = m.column_stride;
  t.column_stride = m.row_stride;
  return t;
}

/* A product out = a x b, or out += with is_added. */
struct product_row {
  int which;
  struct cuda_matrix a, b, out;
  bool is_added;
};

static bool products_add(struct backend_program *program, struct details *own, const struct product_row *rows,
                         size_t n) {
  for (size_t i = 0; i < n; i++) {
    const struct product_row *row = &rows[i];
    own->products[row->which] = cuda_product_new(
        program,
        &(struct cuda_product_shape){
            .stack = 1, .a = row->a, .b = row->b, .out = row->out, .alpha = 1, .beta = row->is_added});
    if (!own->products[row->which])
      return false;
  }
  return true;
}

/* Every matrix begins at a multiple of h elements, but W, X and its gradient. */
static bool forward_products(struct backend_program *program, struct details *own, bool has_bias) {
  const struct recurrent *s = &own->shape;
  int64_t h = s->hidden, wide = width_of(s), plain = plain_width(s), rows = rows_of(s),
          step = recurrent_row_step(s);
  struct cuda_matrix x = rows_view(rows, s->input, s->input, 64),
                     w = rows_view(wide, s->input, s->input, wide * s->input);
  struct cuda_matrix state = rows_view(s->batch, h, step * h, h),
                     hidden = rows_view(s->batch, h, step * wide, h);
  struct cuda_matrix r = rows_view(plain, h, h, h), r_hidden = rows_view(h, h, h, h);
  const struct product_row products[] = {
      {GATES_OF_X, x, view_transposed(w), rows_view(rows, wide, wide, h), has_bias},
      {GATES_OF_H, state, view_transposed(r), rows_view(s->batch, plain, step * wide, h), true},
      {HIDDEN, state, view_transposed(r_hidden), s->is_linear_first ? state : hidden, !s->is_linear_first}};
  return products_add(program, own, products, is_gru(s) ? 3 : 2);
}

static bool backward_products(struct backend_program *program, struct details *own) {
  const struct recurrent *s = &own->shape;
  int64_t h = s->hidden, wide = width_of(s), plain = plain_width(s), rows = rows_of(s),
          step = recurrent_row_step(s);
  struct cuda_matrix x = rows_view(rows, s->input, s->input, 64),
                     w = rows_view(wide, s->input, s->input, wide * s->input);
  struct cuda_matrix states = rows_view(rows, h, h, h), hiddens = rows_view(rows, h, wide, h);
  struct cuda_matrix kept = rows_view(s->batch, h, step * h, h),
                     hidden = rows_view(s->batch, h, step * wide, h);
  struct cuda_matrix dh = rows_view(s->batch, h, h, h), r = rows_view(plain, h, h, h),
                     r_hidden = rows_view(h, h, h, h);
  struct cuda_matrix gates = rows_view(rows, wide, wide, h), plains = rows_view(rows, plain, wide, h);
  bool is_first = s->is_linear_first;
  const struct product_row products[] = {
      {DH, rows_view(s->batch, plain, step * wide, h), r, dh, true},
      {DX, gates, w, x, false},
      {DX_MORE, gates, w, x, true},
      {DW, view_transposed(gates), x, w, false},
      {DR, view_transposed(plains), states, r, false},
      {D_HIDDEN, is_first ? kept : hidden, r_hidden, dh, is_first},
      {DR_HIDDEN, view_transposed(is_first ? states : hiddens), states, r_hidden, false}};
  return products_add(program, own, products, is_gru(s) ? 7 : 5);
}

struct walk {
  struct backend_program *program;
  const struct cuda_step *step;
  const struct details *own;
  struct cuda_recurrent pass;
  cudaStream_t stream;
  struct err *err;
};

static void *arg_data(const struct cuda_step *step, int arg) {
  return arg >= 0 && step->args[arg].buffer >= 0 ? step->args[arg].tensor.data : NULL;
}

static void *in_data(const struct walk *walk, int i) {
  return i < walk->own->n_in ? arg_data(walk->step, i) : NULL;
}

static void *out_data(const struct walk *walk, int i) {
  return i < walk->own->n_out ? arg_data(walk->step, walk->own->out + i) : NULL;
}

/* Direction d's part of a tensor, of `elems` each; NULL where it is absent. */
static float *direction_part(void *tensor, int64_t d, int64_t elems) {
  return tensor ? (float *)tensor + d * elems : NULL;
}

static void walk_multiply(struct walk *walk, int which, const float *a, const float *b, float *out) {
  struct cuda_product_io io = {
      .a = a, .b = b, .out = out, .workspace = arg_data(walk->step, walk->own->scratch[SCRATCH_WORK])};
  if (walk->err->code == ERR_OK)
    cuda_product_enqueue(walk->own->products[which], walk->step->node, &io, walk->stream, walk->err);
}

static enum cuda_cell cell_of(const struct recurrent *shape) {
  return shape->cell->has_c ? CUDA_LSTM : is_gru(shape) ? CUDA_GRU : CUDA_RNN;
}

static void pass_init(struct walk *walk, int64_t d, float *record) {
  const struct recurrent *s = &walk->own->shape;
  const struct cuda_program_view *program = cuda_view(walk->program);
  int64_t rows = rows_of(s), h = s->hidden, wide = width_of(s);
  struct cuda_recurrent *pass = &walk->pass;
  *pass = (struct cuda_recurrent){.cell = cell_of(s),
                                  .steps = s->steps,
                                  .batch = s->batch,
                                  .hidden = h,
                                  .directions = s->directions,
                                  .direction = d,
                                  .gates = s->cell->gates,
                                  .is_reverse = s->is_reverse || d == 1,
                                  .is_batch_first = s->is_batch_first,
                                  .is_coupled = s->is_coupled,
                                  .is_linear_first = s->is_linear_first,
                                  .clip = s->clip,
                                  .node = walk->step->node->index,
                                  .fault = program->fault,
                                  .lengths = in_data(walk, RECURRENT_LENGTHS),
                                  .bias = direction_part(in_data(walk, RECURRENT_B), d, 2 * wide),
                                  .p = direction_part(in_data(walk, RECURRENT_P), d, 3 * h),
                                  .gate_sums = record,
                                  .h_before = record + rows * wide,
                                  .h_first = in_data(walk, RECURRENT_H),
                                  .c_first = in_data(walk, RECURRENT_C)};
  memcpy(pass->functions, s->functions[d], sizeof pass->functions);
  pass->c_before = pass->h_before + rows * h;
  pass->kept = pass->c_before + (s->cell->has_c ? rows * h : 0);
}

/* Where step t's rows of a matrix [rows, columns] begin. */
static float *at_step(const struct walk *walk, float *matrix, int64_t t, int64_t columns) {
  return matrix + recurrent_row(&walk->own->shape, t, 0) * columns;
}

static void step_forward(struct walk *walk, int64_t t, const float *r) {
  const struct recurrent *s = &walk->own->shape;
  const struct cuda_recurrent *pass = &walk->pass;
  int64_t h = s->hidden, wide = width_of(s), plain = plain_width(s);
  float *gates = at_step(walk, pass->gate_sums, t, wide), *state = at_step(walk, pass->h_before, t, h);
  float *kept = at_step(walk, pass->kept, t, h);
  walk_multiply(walk, GATES_OF_H, state, r, gates);
  if (is_gru(s)) {
    cuda_recurrent_step_launch(pass, t, 0, walk->stream);
    walk_multiply(walk, HIDDEN, s->is_linear_first ? state : kept, r + plain * h,
                  s->is_linear_first ? kept : gates + plain);
  }
  cuda_recurrent_step_launch(pass, t, 1, walk->stream);
}

static int64_t step_at(const struct walk *walk, int64_t s) {
  return walk->pass.is_reverse ? walk->pass.steps - 1 - s : s;
}

static int enqueue_forward(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  const struct details *own = step->details;
  const struct recurrent *s = &own->shape;
  struct walk walk = {.program = program, .step = step, .own = own, .stream = stream, .err = err};
  int record_out = s->cell->has_c ? 3 : 2;
  for (int64_t d = 0; d < s->directions; d++) {
    float *record = direction_part(out_data(&walk, record_out), d, recurrent_record_elems(s));
    const float *r = direction_part(in_data(&walk, RECURRENT_R), d, width_of(s) * s->hidden);
    pass_init(&walk, d, record ? record : arg_data(step, own->scratch[SCRATCH_RECORD]));
    walk.pass.y = out_data(&walk, 0);
    walk.pass.y_h = out_data(&walk, 1);
    walk.pass.y_c = s->cell->has_c ? out_data(&walk, 2) : NULL;
    cuda_recurrent_begin_launch(&walk.pass, stream);
    walk_multiply(&walk, GATES_OF_X, in_data(&walk, RECURRENT_X),
                  direction_part(in_data(&walk, RECURRENT_W), d, width_of(s) * s->input),
                  walk.pass.gate_sums);
    for (int64_t i = 0; i < s->steps; i++)
      step_forward(&walk, step_at(&walk, i), r);
  }
  return err->code;
}

static void step_back(struct walk *walk, int64_t t, const float *r) {
  const struct recurrent *s = &walk->own->shape;
  const struct cuda_recurrent *pass = &walk->pass;
  int64_t h = s->hidden, wide = width_of(s), plain = plain_width(s);
  float *d_gates = at_step(walk, pass->d_gates, t, wide);
  cuda_recurrent_step_back_launch(pass, t, 0, walk->stream);
  if (is_gru(s) && s->is_linear_first) {
    walk_multiply(walk, D_HIDDEN, at_step(walk, pass->d_kept, t, h), r + plain * h, pass->dh);
  } else if (is_gru(s)) {
    walk_multiply(walk, D_HIDDEN, d_gates + plain, r + plain * h, pass->d_spare);
    cuda_recurrent_step_back_launch(pass, t, 1, walk->stream);
  }
  walk_multiply(walk, DH, d_gates, r, pass->dh);
}

static void sum_columns(struct walk *walk, float *matrix, int64_t columns, float *sums) {
  int64_t rows = rows_of(&walk->own->shape);
  struct cuda_tensor tensor = {
      .data = matrix, .type = CUDA_F32, .layout = CUDA_DENSE, .elems = rows * columns};
  cuda_channel_sums_launch(tensor, (struct cuda_channel_view){.outer = rows, .channels = columns, .inner = 1},
                           arg_data(walk->step, walk->own->scratch[SCRATCH_SUMS]), sums, walk->stream);
}

static void bias_back(struct walk *walk, float *db) {
  const struct recurrent *s = &walk->own->shape;
  int64_t wide = width_of(s), h = s->hidden;
  sum_columns(walk, walk->pass.d_gates, wide, db);
  sum_columns(walk, walk->pass.d_gates, wide, db + wide);
  if (is_gru(s) && s->is_linear_first)
    sum_columns(walk, walk->pass.d_kept, h, db + 2 * wide - h);
}

/* From the gradients of the gates in all steps to those of what does not depend on the steps. */
static void finish_back(struct walk *walk, int64_t d) {
  const struct recurrent *s = &walk->own->shape;
  const struct cuda_recurrent *pass = &walk->pass;
  int64_t h = s->hidden, wide = width_of(s), plain = plain_width(s);
  const float *x = in_data(walk, RECURRENT_X),
              *w = direction_part(in_data(walk, RECURRENT_W), d, wide * s->input);
  float *dx = out_data(walk, RECURRENT_X),
        *dw = direction_part(out_data(walk, RECURRENT_W), d, wide * s->input);
  float *dr = direction_part(out_data(walk, RECURRENT_R), d, wide * h),
        *db = direction_part(out_data(walk, RECURRENT_B), d, 2 * wide);
  float *dp = direction_part(out_data(walk, RECURRENT_P), d, 3 * h);
  if (dx)
    walk_multiply(walk, d > 0 ? DX_MORE : DX, pass->d_gates, w, dx);
  if (dw)
    walk_multiply(walk, DW, pass->d_gates, x, dw);
  if (dr)
    walk_multiply(walk, DR, pass->d_gates, pass->h_before, dr);
  if (dr && is_gru(s))
    walk_multiply(walk, DR_HIDDEN, s->is_linear_first ? pass->d_kept : pass->d_gates + plain,
                  s->is_linear_first ? pass->h_before : pass->kept, dr + plain * h);
  if (db)
    bias_back(walk, db);
  if (dp) {
    float *products = arg_data(walk->step, walk->own->scratch[SCRATCH_PEEPHOLES]);
    cuda_recurrent_peepholes_launch(pass, products, walk->stream);
    sum_columns(walk, products, 3 * h, dp);
  }
}

static void grads_init(struct walk *walk) {
  const struct recurrent *s = &walk->own->shape;
  struct cuda_recurrent *pass = &walk->pass;
  int64_t states = s->batch * s->hidden;
  pass->dy = in_data(walk, RECURRENT_DY);
  pass->dy_h = in_data(walk, RECURRENT_DY_H);
  pass->dy_c = in_data(walk, RECURRENT_DY_C);
  pass->dh = arg_data(walk->step, walk->own->scratch[SCRATCH_STATES]);
  pass->dc = pass->dh + states;
  pass->d_spare = pass->dc + states;
  pass->d_gates = arg_data(walk->step, walk->own->scratch[SCRATCH_GRADS]);
  pass->d_kept = pass->d_gates + rows_of(s) * width_of(s);
  pass->dh_first = out_data(walk, RECURRENT_H);
  pass->dc_first = out_data(walk, RECURRENT_C);
}

static int enqueue_backward(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  const struct details *own = step->details;
  const struct recurrent *s = &own->shape;
  struct walk walk = {.program = program, .step = step, .own = own, .stream = stream, .err = err};
  for (int64_t d = 0; d < s->directions; d++) {
    const float *r = direction_part(in_data(&walk, RECURRENT_R), d, width_of(s) * s->hidden);
    pass_init(&walk, d, direction_part(in_data(&walk, RECURRENT_RECORD), d, recurrent_record_elems(s)));
    grads_init(&walk);
    cuda_recurrent_begin_back_launch(&walk.pass, stream);
    for (int64_t i = s->steps - 1; i >= 0; i--)
      step_back(&walk, step_at(&walk, i), r);
    cuda_recurrent_end_back_launch(&walk.pass, stream);
    finish_back(&walk, d);
  }
  return err->code;
}

static size_t workspace_bytes(const struct details *own) {
  size_t most = 0;
  for (int p = 0; p < PRODUCTS; p++)
    if (own->products[p] && cuda_product_workspace_bytes(own->products[p]) > most)
      most = cuda_product_workspace_bytes(own->products[p]);
  return most;
}

static void add_scratch(struct backend_program *program, struct cuda_step *step) {
  struct details *own = step->details;
  const struct recurrent *s = &own->shape;
  int64_t rows = rows_of(s), h = s->hidden, wide = width_of(s);
  bool keeps = !own->is_backward && own->n_out > (s->cell->has_c ? 3 : 2);
  const int64_t widest = wide > 3 * h ? wide : 3 * h;
  const size_t bytes[SCRATCHES] = {
      [SCRATCH_STATES] = own->is_backward ? (size_t)(3 * s->batch * h) * 4 : 0,
      [SCRATCH_RECORD] = own->is_backward || keeps ? 0 : (size_t)recurrent_record_elems(s) * 4,
      [SCRATCH_GRADS] = own->is_backward ? (size_t)(rows * (wide + h)) * 4 : 0,
      [SCRATCH_PEEPHOLES] = own->is_backward && s->cell->has_c ? (size_t)(rows * 3 * h) * 4 : 0,
      [SCRATCH_SUMS] = own->is_backward ? cuda_channel_sums_bytes((struct cuda_channel_view){
                                              .outer = rows, .channels = widest, .inner = 1})
                                        : 0,
      [SCRATCH_WORK] = workspace_bytes(own),
  };
  for (int i = 0; i < SCRATCHES; i++)
    own->scratch[i] = bytes[i] > 0 ? cuda_scratch(program, step, bytes[i]) : -1;
}

static bool prepare_recurrent(struct backend_program *program, const struct node *node, bool is_backward) {
  const struct cuda_program_view *view = cuda_view(program);
  struct details *own = arena_new(view->memory, sizeof *own);
  bool has_bias = node->n_inputs > RECURRENT_B && node->inputs[RECURRENT_B] >= 0;
  struct err err = ERR_NONE;
  *own = (struct details){.is_backward = is_backward, .n_in = node->n_inputs, .n_out = node->n_outputs};
  if (recurrent_init(&own->shape, view->graph, node, &err) ||
      !(is_backward ? backward_products(program, own) : forward_products(program, own, has_bias)))
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = is_backward ? enqueue_backward : enqueue_forward;
  step->details = own;
  for (int i = 0; i < node->n_inputs; i++)
    cuda_read(program, step, node->inputs[i], i == RECURRENT_LENGTHS ? CUDA_ANY_TYPE : CUDA_F32, CUDA_DENSE);
  own->out = step->n_args;
  for (int i = 0; i < node->n_outputs; i++)
    cuda_write(program, step, node->outputs[i], CUDA_F32, CUDA_DENSE);
  add_scratch(program, step);
  cuda_step_end(program, step);
  return true;
}

static bool prepare_forward(struct backend_program *program, const struct node *node) {
  return prepare_recurrent(program, node, false);
}

static bool prepare_backward(struct backend_program *program, const struct node *node) {
  return prepare_recurrent(program, node, true);
}

const struct cuda_kernel cuda_kernel_lstm = {.op = "LSTM", .prepare = prepare_forward};
const struct cuda_kernel cuda_kernel_lstm_grad = {.op = "LSTMGrad", .prepare = prepare_backward};
const struct cuda_kernel cuda_kernel_gru = {.op = "GRU", .prepare = prepare_forward};
const struct cuda_kernel cuda_kernel_gru_grad = {.op = "GRUGrad", .prepare = prepare_backward};
const struct cuda_kernel cuda_kernel_rnn = {.op = "RNN", .prepare = prepare_forward};
const struct cuda_kernel cuda_kernel_rnn_grad = {.op = "RNNGrad", .prepare = prepare_backward};

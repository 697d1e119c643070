/* Normalisation of rows and its gradient, as loops over dense rows: one pass for the mean, one for the
   variance, one for the result, while the row is in cache. */
#include "model/ops/row_norm.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/lanes.h"
#include "worker/backend/cpu/reals.h"

/* The row of element i of x[rows,n] is r = i / n; its element of scale (and bias) f32[channels] is
   r % period * (n / run) + i % n / run. */
struct rows {
  int64_t rows, n, run, period, channels;
  int bias, mean, inv_std; /* the step's arguments; -1: absent */
  dnnl_data_type_t type;   /* of x, y and their gradients; bf16 rows are widened in scratch */
  int scratch;
};

static bool rows_init(struct rows *rows, const struct row_norm *norm) {
  *rows = (struct rows){norm->rows, norm->n, 1, 1, 1, -1, -1, -1, dnnl_f32, -1};
  if (!row_norm_channels(norm, &rows->run, &rows->channels))
    return false;
  rows->period = rows->channels * rows->run / rows->n;
  return rows->n % rows->run == 0 && rows->period > 0 &&
         rows->channels * rows->run == rows->period * rows->n && norm->rows % rows->period == 0;
}

LANES_SUM(sum_of, v)
LANES_SUM(squares_of, (v - m) * (v - m))

/* A row to be normalised: x and y f32[n], and what its channels have. */
struct row {
  const float *x, *scale, *bias; /* bias NULL: none */
  float *y, mean, inv_std;
};

/* y = (x - mean) inv_std scale + bias, one channel an element */
static void scale_columns(const struct row *row, int64_t n) {
  const float *x = row->x, *scale = row->scale, *bias = row->bias;
  float *y = row->y, mean = row->mean, inv_std = row->inv_std;
  if (bias)
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - mean) * inv_std * scale[i] + bias[i];
  else
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - mean) * inv_std * scale[i];
}

/* The same, one channel a run: of the run that begins at `begin`, of channel c. */
static void scale_run(const struct row *row, int64_t begin, int64_t run, int64_t c) {
  const float *x = row->x + begin;
  float *y = row->y + begin, mean = row->mean, factor = row->inv_std * row->scale[c];
  float bias = row->bias ? row->bias[c] : 0.0f;
  for (int64_t i = 0; i < run; i++)
    y[i] = (x[i] - mean) * factor + bias;
}

static float *arg_data(const struct cpu_step *step, int arg) {
  return arg < 0 ? NULL : step->args[arg].data;
}

/* Row r of an argument; where it is bf16, in place `turn` of the scratch, to which it is copied. */
static float *row_open(const struct cpu_step *step, int arg, int64_t r, int turn) {
  const struct rows *rows = step->details;
  if (rows->type == dnnl_f32)
    return (float *)step->args[arg].data + r * rows->n;
  float *row = (float *)step->args[rows->scratch].data + turn * rows->n;
  reals_widen(step->args[arg].data, r * rows->n, rows->n, row);
  return row;
}

/* The same for a row that will be written, and once it was. */
static float *result_open(const struct cpu_step *step, int arg, int64_t r) {
  const struct rows *rows = step->details;
  return (float *)step->args[rows->type == dnnl_f32 ? arg : rows->scratch].data +
         (rows->type == dnnl_f32 ? r * rows->n : 0);
}

static void result_close(const struct cpu_step *step, int arg, int64_t r, const float *row) {
  const struct rows *rows = step->details;
  if (rows->type != dnnl_f32)
    reals_narrow(row, rows->n, 1, step->args[arg].data, r * rows->n);
}

/* For so many rows. */
static void scratch_add(struct backend_program *program, struct cpu_step *step, struct rows *rows, int n) {
  if (rows->type == dnnl_f32)
    return;
  rows->scratch = step->n_args;
  cpu_scratch(program, step, n * rows->n, dnnl_f32);
}

enum { NORM_X, NORM_SCALE, NORM_Y };

static int run_norm(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  (void)program;
  (void)run;
  (void)err;
  const struct rows *rows = step->details;
  const float *scales = step->args[NORM_SCALE].data, *biases = arg_data(step, rows->bias);
  float *means = arg_data(step, rows->mean), *inv_stds = arg_data(step, rows->inv_std);
  float epsilon = node_attr_float(step->node, "epsilon", 1e-5f);
  for (int64_t r = 0; r < rows->rows; r++) {
    const float *x = row_open(step, NORM_X, r, 0);
    float *y = result_open(step, NORM_Y, r);
    int64_t channel = r % rows->period * (rows->n / rows->run);
    struct row row = {.x = x, .scale = scales + channel, .bias = biases ? biases + channel : NULL, .y = y};
    row.mean = (float)(sum_of(x, 0, rows->n) / (double)rows->n);
    row.inv_std = (float)(1.0 / sqrt(squares_of(x, row.mean, rows->n) / (double)rows->n + epsilon));
    if (rows->run == 1)
      scale_columns(&row, rows->n);
    for (int64_t i = 0, c = 0; i < rows->n && rows->run > 1; i += rows->run, c++)
      scale_run(&row, i, rows->run, c);
    result_close(step, NORM_Y, r, y);
    if (means)
      means[r] = row.mean;
    if (inv_stds)
      inv_stds[r] = row.inv_std;
  }
  return ERR_OK;
}

static int write_optional(struct backend_program *program, struct cpu_step *step, const struct node *node,
                          int output) {
  if (output >= node->n_outputs || node->outputs[output] < 0)
    return -1;
  cpu_write(program, step, 0, node->outputs[output], NULL);
  return step->n_args - 1;
}

static bool prepare_norm(struct backend_program *program, const struct node *node,
                         const struct row_norm *norm) {
  struct rows rows;
  if (!rows_init(&rows, norm))
    return false;
  rows.type = cpu_type(program, node->outputs[0]);
  struct cpu_step *step = cpu_step_new(program, node);
  int x = cpu_read_dense(program, step, node->inputs[0], rows.type);
  cpu_read(program, step, 0, node->inputs[1], NULL);
  cpu_write_over_dense(program, step, rows.type, x);
  if (norm->has_bias) {
    rows.bias = step->n_args;
    cpu_read(program, step, 0, node->inputs[2], NULL);
  }
  rows.mean = write_optional(program, step, node, 1);
  rows.inv_std = write_optional(program, step, node, 2);
  scratch_add(program, step, &rows, 1);
  step->details = arena_copy(&program->memory, &rows, sizeof rows);
  step->run = run_norm;
  cpu_step_end(program, step, NULL);
  return true;
}

/* X, scale, bias -> Y, mean, inv_std */
static bool prepare_layer(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_layer(&norm, program->graph, node, &err) && prepare_norm(program, node, &norm);
}

static bool prepare_instance(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_instance(&norm, program->graph, node, &err) && prepare_norm(program, node, &norm);
}

static bool prepare_group(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_group(&norm, program->graph, node, &err) && prepare_norm(program, node, &norm);
}

/* What a row is to its gradient: dy, x and dx f32[n], and the sums of g = dy scale and of g x_hat. */
struct row_grad {
  const float *dy, *x, *scale;
  float *dx, *dscale, *dbias; /* sums so far */
  float mean, inv_std;
  double sum, dot;
};

/* One channel an element: adds to all four sums. */
static void sum_columns(struct row_grad *row, int64_t n) {
  const float *dy = row->dy, *x = row->x, *scale = row->scale;
  float *dscale = row->dscale, *dbias = row->dbias, mean = row->mean, inv_std = row->inv_std;
  for (int64_t begin = 0, end; begin < n; begin = end) {
    lanes sums[LANES_VECTORS] = {0}, dots[LANES_VECTORS] = {0};
    int64_t i = begin;
    end = begin + lanes_chunk(n - begin);
    for (; i + LANES <= end; i += LANES)
      for (int k = 0; k < LANES_VECTORS; k++) {
        int64_t at = i + k * LANES_WIDTH;
        lanes d = LANES_AT(dy + at), x_hat = (LANES_AT(x + at) - mean) * inv_std,
              g = d * LANES_AT(scale + at);
        sums[k] += g;
        dots[k] += g * x_hat;
        LANES_AT(dscale + at) += d * x_hat;
        LANES_AT(dbias + at) += d;
      }
    for (; i < end; i++) {
      float x_hat = (x[i] - mean) * inv_std, g = dy[i] * scale[i];
      row->sum += g;
      row->dot += g * x_hat;
      dscale[i] += dy[i] * x_hat;
      dbias[i] += dy[i];
    }
    row->sum += lanes_total(sums);
    row->dot += lanes_total(dots);
  }
}

/* One channel a run: adds to the sums of channel c. */
static void sum_run(struct row_grad *row, int64_t begin, int64_t run, int64_t c) {
  float mean = row->mean;
  const float *dy = row->dy + begin, *x = row->x + begin;
  double sum = 0.0, dot = 0.0;
  for (int64_t left = run, size; left > 0; left -= size, dy += size, x += size) {
    lanes sums[LANES_VECTORS] = {0}, dots[LANES_VECTORS] = {0};
    int64_t i = 0;
    size = lanes_chunk(left);
    for (; i + LANES <= size; i += LANES)
      for (int k = 0; k < LANES_VECTORS; k++) {
        int64_t at = i + k * LANES_WIDTH;
        sums[k] += LANES_AT(dy + at);
        dots[k] += LANES_AT(dy + at) * (LANES_AT(x + at) - mean);
      }
    for (; i < size; i++) {
      sum += dy[i];
      dot += dy[i] * (x[i] - mean);
    }
    sum += lanes_total(sums);
    dot += lanes_total(dots);
  }
  dot *= row->inv_std;
  row->dscale[c] += (float)dot;
  row->dbias[c] += (float)sum;
  row->sum += sum * row->scale[c];
  row->dot += dot * row->scale[c];
}

/* dx = inv_std (g - mean(g) - x_hat mean(g x_hat)) for elements [begin, begin + n) with scales `step` apart
 */
static void finish_columns(const struct row_grad *row, int64_t n) {
  const float *dy = row->dy, *x = row->x, *scale = row->scale;
  float *dx = row->dx, inv_std = row->inv_std, mean = row->mean;
  float sum = (float)(row->sum / (double)n), slope = (float)(row->dot / (double)n) * inv_std;
  for (int64_t i = 0; i < n; i++)
    dx[i] = inv_std * (dy[i] * scale[i] - sum - (x[i] - mean) * slope);
}

static void finish_run(const struct row_grad *row, int64_t begin, int64_t run, float scale, int64_t n) {
  const float *dy = row->dy + begin, *x = row->x + begin;
  float *dx = row->dx + begin, inv_std = row->inv_std, mean = row->mean;
  float sum = (float)(row->sum / (double)n), slope = (float)(row->dot / (double)n) * inv_std;
  for (int64_t i = 0; i < run; i++)
    dx[i] = inv_std * (dy[i] * scale - sum - (x[i] - mean) * slope);
}

static void grad_row(struct row_grad *row, const struct rows *rows) {
  if (rows->run == 1) {
    sum_columns(row, rows->n);
    finish_columns(row, rows->n);
    return;
  }
  for (int64_t i = 0, c = 0; i < rows->n; i += rows->run, c++)
    sum_run(row, i, rows->run, c);
  for (int64_t i = 0, c = 0; i < rows->n; i += rows->run, c++)
    finish_run(row, i, rows->run, row->scale[c], rows->n);
}

/* Adds the sums of some rows to those of all, and begins new ones. */
static void sums_move(float *from, float *to, int64_t n) {
  for (int64_t i = 0; i < n && to; i++)
    to[i] += from[i];
  memset(from, 0, (size_t)n * sizeof *from);
}

/* Sums over rows are of at most this many, then of such sums. */
enum { ROWS_SUMMED = 128 };

enum { GRAD_DY, GRAD_X, GRAD_SCALE, GRAD_MEAN, GRAD_INV_STD, GRAD_DX, GRAD_DSCALE, GRAD_SUMS };

static int run_grad(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  (void)program;
  (void)run;
  (void)err;
  const struct rows *rows = step->details;
  const float *mean = step->args[GRAD_MEAN].data, *inv_std = step->args[GRAD_INV_STD].data;
  float *sums = step->args[GRAD_SUMS].data, *dscale = step->args[GRAD_DSCALE].data;
  float *dbias = arg_data(step, rows->bias);
  size_t size_bytes = (size_t)rows->channels * sizeof *sums;
  memset(sums, 0, 2 * size_bytes);
  memset(dscale, 0, size_bytes);
  if (dbias)
    memset(dbias, 0, size_bytes);
  for (int64_t r = 0; r < rows->rows; r++) {
    int64_t channel = r % rows->period * (rows->n / rows->run);
    struct row_grad row = {.dy = row_open(step, GRAD_DY, r, 0),
                           .x = row_open(step, GRAD_X, r, 1),
                           .scale = (float *)step->args[GRAD_SCALE].data + channel,
                           .dx = result_open(step, GRAD_DX, r),
                           .dscale = sums + channel,
                           .dbias = sums + rows->channels + channel,
                           .mean = mean[r],
                           .inv_std = inv_std[r]};
    grad_row(&row, rows);
    result_close(step, GRAD_DX, r, row.dx);
    if (r % ROWS_SUMMED == ROWS_SUMMED - 1 || r == rows->rows - 1) {
      sums_move(sums, dscale, rows->channels);
      sums_move(sums + rows->channels, dbias, rows->channels);
    }
  }
  return ERR_OK;
}

/* RowNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dbias */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct rows rows;
  struct err err = ERR_NONE;
  if (row_norm_of_grad(&norm, program->graph, node, &err) || !rows_init(&rows, &norm))
    return false;
  rows.type = cpu_type(program, node->outputs[0]);
  struct cpu_step *step = cpu_step_new(program, node);
  int dy = cpu_read_dense(program, step, node->inputs[0], rows.type);
  cpu_read_dense(program, step, node->inputs[1], rows.type);
  for (int i = 2; i < 5; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  cpu_write_over_dense(program, step, rows.type, dy);
  cpu_write(program, step, 0, node->outputs[1], NULL);
  cpu_scratch(program, step, 2 * rows.channels, dnnl_f32);
  rows.bias = write_optional(program, step, node, 2);
  scratch_add(program, step, &rows, 2);
  step->details = arena_copy(&program->memory, &rows, sizeof rows);
  step->run = run_grad;
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_layer_norm = {"LayerNormalization", prepare_layer};
const struct cpu_kernel cpu_instance_norm = {"InstanceNormalization", prepare_instance};
const struct cpu_kernel cpu_group_norm = {"GroupNormalization", prepare_group};
const struct cpu_kernel cpu_row_norm_grad = {"RowNormGrad", prepare_grad};

/* LinearCrossEntropy: the scores of a chunk of rows at a time, which become their gradient in place. */
#include "model/ops/linear_cross_entropy.h"

#include <string.h>

#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/loss/class_rows.h"

/* Scores of a chunk stay in a cache of the machine; the weight is read once a chunk, which many rows share.
 */
enum { CHUNK_ELEMS = 2 << 20, CHUNK_ROWS_LEAST = 32 };

static int64_t chunk_rows(const struct linear_sizes *sizes) {
  int64_t rows = CHUNK_ELEMS / sizes->classes;
  rows = rows < CHUNK_ROWS_LEAST ? CHUNK_ROWS_LEAST : rows;
  return rows < sizes->rows ? rows : sizes->rows;
}

/* What a run works on. */
struct linear_run {
  struct linear_sizes sizes;
  const struct op_call *call;
  float *scores; /* f32[chunk rows, classes] */
  double *dbias; /* f64[classes] */
};

static struct matrix rows_of(const float *data, int64_t rows, int64_t cols) {
  return (struct matrix){data, rows, cols, cols, 1};
}

static void add_bias(const struct linear_run *run, int64_t rows) {
  const float *bias = run->call->in[LINEAR_BIAS].data;
  float *x = run->scores;
  for (int64_t r = 0; r < rows && bias; r++, x += run->sizes.classes)
    for (int64_t c = 0; c < run->sizes.classes; c++)
      x[c] += bias[c];
}

static void sum_bias_gradient(const struct linear_run *run, int64_t rows) {
  const float *dx = run->scores;
  for (int64_t r = 0; r < rows; r++, dx += run->sizes.classes)
    for (int64_t c = 0; c < run->sizes.classes; c++)
      run->dbias[c] += (double)dx[c];
}

/* Of the chunk that begins at row `first`, whose scores have become their gradient. */
static void chunk_gradients(const struct linear_run *run, int64_t first, int64_t rows) {
  const struct linear_sizes *sizes = &run->sizes;
  const struct tensor *in = run->call->in, *grads = &run->call->out[LINEAR_GRADS];
  struct matrix dscores = rows_of(run->scores, rows, sizes->classes);
  struct matrix hidden =
      rows_of((const float *)in[LINEAR_HIDDEN].data + first * sizes->features, rows, sizes->features);
  float *dhidden = grads[LINEAR_HIDDEN].data, *dweight = grads[LINEAR_WEIGHT].data;
  if (dhidden)
    gemm_multiply(dscores, matrix_transposed(linear_weight(sizes, in[LINEAR_WEIGHT].data)), false,
                  dhidden + first * sizes->features, sizes->features);
  if (dweight && sizes->is_transposed)
    gemm_multiply(matrix_transposed(dscores), hidden, first > 0, dweight, sizes->features);
  else if (dweight)
    gemm_multiply(matrix_transposed(hidden), dscores, first > 0, dweight, sizes->classes);
  if (grads[LINEAR_BIAS].data)
    sum_bias_gradient(run, rows);
}

static void run_chunk(const struct linear_run *run, struct class_pass *pass, int64_t first, int64_t rows) {
  const struct linear_sizes *sizes = &run->sizes;
  const float *hidden = (const float *)run->call->in[LINEAR_HIDDEN].data + first * sizes->features;
  const int64_t *labels = (const int64_t *)run->call->in[LINEAR_LABELS].data + first;
  gemm_multiply(rows_of(hidden, rows, sizes->features),
                linear_weight(sizes, run->call->in[LINEAR_WEIGHT].data), false, run->scores, sizes->classes);
  add_bias(run, rows);
  for (int64_t r = 0; r < rows; r++)
    class_pass_row(pass, run->scores + r * sizes->classes, labels[r]);
  if (pass->has_gradient)
    chunk_gradients(run, first, rows);
}

static int run_linear(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  const struct tensor *grads = &call->out[LINEAR_GRADS];
  struct linear_run linear = {.sizes = linear_sizes_of(program->graph, step->node), .call = call};
  int64_t rows = chunk_rows(&linear.sizes), classes = linear.sizes.classes;
  struct class_pass pass = {.scale = 1,
                            .has_gradient = grads[LINEAR_HIDDEN].data || grads[LINEAR_WEIGHT].data ||
                                            grads[LINEAR_BIAS].data};
  float *dbias = grads[LINEAR_BIAS].data;
  (void)run;
  if (class_rows_init(&pass.rows, step->node, &call->in[LINEAR_LABELS], classes, err))
    return err->code;
  linear.dbias = (double *)details->scratch;
  linear.scores = details->scratch + 2 * classes;
  memset(linear.dbias, 0, (size_t)classes * sizeof *linear.dbias);
  for (int64_t first = 0; first < linear.sizes.rows; first += rows)
    run_chunk(&linear, &pass, first, linear.sizes.rows - first < rows ? linear.sizes.rows - first : rows);
  for (int64_t c = 0; dbias && c < classes; c++)
    dbias[c] = (float)linear.dbias[c];
  class_rows_finish(&pass.sums, call->out);
  return ERR_OK;
}

static bool prepare_linear(struct backend_program *program, const struct node *node) {
  struct linear_sizes sizes = linear_sizes_of(program->graph, node);
  class_step_add(program, node, sizes.classes * (2 + chunk_rows(&sizes)), run_linear);
  return true;
}

const struct cpu_kernel cpu_linear_cross_entropy = {"LinearCrossEntropy", prepare_linear};

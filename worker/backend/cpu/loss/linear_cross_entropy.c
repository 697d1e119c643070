/* LinearCrossEntropy: the scores of a chunk of rows at a time, which become their gradient in place. */
#include "model/ops/linear_cross_entropy.h"

#include <string.h>

#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/loss/class_rows.h"
#include "worker/backend/cpu/product.h"
#include "worker/backend/cpu/reals.h"

/* Scores of a chunk stay in a cache of the machine; the weight is read once a chunk, which many rows share.
 */
enum { CHUNK_ELEMS = 2 << 20, CHUNK_ROWS_LEAST = 32 };

static int64_t chunk_rows(const struct linear_sizes *sizes) {
  int64_t rows = CHUNK_ELEMS / sizes->classes;
  rows = rows < CHUNK_ROWS_LEAST ? CHUNK_ROWS_LEAST : rows;
  return rows < sizes->rows ? rows : sizes->rows;
}

/* The products of a chunk with bf16 factors: of a whole chunk, and of the last one, if that is smaller. */
enum { CHUNK_WHOLE, CHUNK_LAST, CHUNK_KINDS };

struct linear_products {
  const struct cpu_product *scores[CHUNK_KINDS], *dhidden[CHUNK_KINDS];
  const struct cpu_product *dweight[CHUNK_KINDS], *first_dweight; /* which all others are added to */
};

/* What a run works on. */
struct linear_run {
  struct linear_sizes sizes;
  const struct op_call *call;
  const struct backend_program *program;
  const struct linear_products *products; /* NULL: factors are f32 */
  float *scores;                          /* f32[chunk rows, classes] */
  void *dscores;                          /* the same as a factor, where that is bf16 */
  double *dbias;                          /* f64[classes] */
};

static struct matrix rows_of(const float *data, int64_t rows, int64_t cols) {
  return (struct matrix){data, rows, cols, cols, 1};
}

/* hidden of a chunk, in the factors' type. */
static const void *hidden_at(const struct linear_run *run, int64_t first) {
  const char *hidden = run->call->in[LINEAR_HIDDEN].data;
  return hidden + first * run->sizes.features * (run->products ? 2 : 4);
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

static int chunk_kind(const struct linear_run *run, int64_t rows) {
  return rows == chunk_rows(&run->sizes) ? CHUNK_WHOLE : CHUNK_LAST;
}

static bool chunk_scores(const struct linear_run *run, int64_t first, int64_t rows) {
  const struct linear_sizes *sizes = &run->sizes;
  const void *hidden = hidden_at(run, first), *weight = run->call->in[LINEAR_WEIGHT].data;
  if (run->products)
    return cpu_product_run(run->program, run->products->scores[chunk_kind(run, rows)], hidden, weight,
                           run->scores);
  gemm_multiply(rows_of(hidden, rows, sizes->features), linear_weight(sizes, weight), false, run->scores,
                sizes->classes);
  return true;
}

/* Of the chunk that begins at row `first`, whose scores have become their gradient. dhidden, dweight: NULL
   where they are not wanted. */
static bool bf16_gradients(const struct linear_run *run, int64_t first, int64_t rows, float *dhidden,
                           float *dweight) {
  const struct linear_products *products = run->products;
  int kind = chunk_kind(run, rows);
  reals_narrow(run->scores, rows * run->sizes.classes, 1, run->dscores, 0);
  if (dhidden && !cpu_product_run(run->program, products->dhidden[kind], run->dscores,
                                  run->call->in[LINEAR_WEIGHT].data, dhidden))
    return false;
  const struct cpu_product *product = first > 0 ? products->dweight[kind] : products->first_dweight;
  const void *hidden = hidden_at(run, first);
  bool is_turned = run->sizes.is_transposed;
  return !dweight || cpu_product_run(run->program, product, is_turned ? run->dscores : hidden,
                                     is_turned ? hidden : run->dscores, dweight);
}

static void f32_gradients(const struct linear_run *run, int64_t first, int64_t rows, float *dhidden,
                          float *dweight) {
  const struct linear_sizes *sizes = &run->sizes;
  struct matrix dscores = rows_of(run->scores, rows, sizes->classes);
  struct matrix hidden = rows_of(hidden_at(run, first), rows, sizes->features);
  if (dhidden)
    gemm_multiply(dscores, matrix_transposed(linear_weight(sizes, run->call->in[LINEAR_WEIGHT].data)), false,
                  dhidden, sizes->features);
  if (dweight && sizes->is_transposed)
    gemm_multiply(matrix_transposed(dscores), hidden, first > 0, dweight, sizes->features);
  else if (dweight)
    gemm_multiply(matrix_transposed(hidden), dscores, first > 0, dweight, sizes->classes);
}

static bool chunk_gradients(const struct linear_run *run, int64_t first, int64_t rows) {
  const struct tensor *grads = &run->call->out[LINEAR_GRADS];
  float *dhidden = grads[LINEAR_HIDDEN].data, *dweight = grads[LINEAR_WEIGHT].data;
  if (dhidden)
    dhidden += first * run->sizes.features;
  if (grads[LINEAR_BIAS].data)
    sum_bias_gradient(run, rows);
  if (run->products)
    return bf16_gradients(run, first, rows, dhidden, dweight);
  f32_gradients(run, first, rows, dhidden, dweight);
  return true;
}

static bool run_chunk(const struct linear_run *run, struct class_pass *pass, int64_t first, int64_t rows) {
  const int64_t *labels = (const int64_t *)run->call->in[LINEAR_LABELS].data + first;
  if (!chunk_scores(run, first, rows))
    return false;
  add_bias(run, rows);
  for (int64_t r = 0; r < rows; r++)
    class_pass_row(pass, run->scores + r * run->sizes.classes, labels[r]);
  return !pass->has_gradient || chunk_gradients(run, first, rows);
}

static int run_linear(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                      struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  const struct tensor *grads = &call->out[LINEAR_GRADS];
  struct linear_run linear = {.sizes = linear_sizes_of(program->graph, step->node),
                              .call = call,
                              .program = program,
                              .products = details->more};
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
  linear.dscores = linear.scores + rows * classes;
  memset(linear.dbias, 0, (size_t)classes * sizeof *linear.dbias);
  for (int64_t first = 0; first < linear.sizes.rows; first += rows)
    if (!run_chunk(&linear, &pass, first,
                   linear.sizes.rows - first < rows ? linear.sizes.rows - first : rows))
      return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
  for (int64_t c = 0; dbias && c < classes; c++)
    dbias[c] = (float)linear.dbias[c];
  class_rows_finish(&pass.sums, call->out);
  return ERR_OK;
}

static struct product_view turned(struct product_view view) {
  return (struct product_view){view.columns, view.rows, view.stack_stride, view.column_stride,
                               view.row_stride};
}

static bool kind_products(struct backend_program *program, const struct linear_sizes *sizes, int kind,
                          int64_t rows, struct linear_products *out) {
  int64_t f = sizes->features, c = sizes->classes;
  struct product_view hidden = {rows, f, rows * f, f, 1}, scores = {rows, c, rows * c, c, 1};
  struct product_view weight = {f, c, f * c, sizes->is_transposed ? 1 : c, sizes->is_transposed ? f : 1};
  struct product_view a = sizes->is_transposed ? turned(scores) : turned(hidden);
  struct product_view b = sizes->is_transposed ? hidden : scores,
                      sum = {a.rows, b.columns, f * c, b.columns, 1};
  const struct cpu_product_shape of_scores = {1, hidden, weight, scores, 1, false, dnnl_bf16, dnnl_f32};
  const struct cpu_product_shape of_hidden = {1, scores, turned(weight), hidden,
                                              1, false,  dnnl_bf16,      dnnl_f32};
  struct cpu_product_shape of_weight = {1, a, b, sum, 1, true, dnnl_bf16, dnnl_f32};
  out->scores[kind] = cpu_product_new(program, &of_scores);
  out->dhidden[kind] = cpu_product_new(program, &of_hidden);
  out->dweight[kind] = cpu_product_new(program, &of_weight);
  of_weight.adds = false;
  if (kind == CHUNK_WHOLE)
    out->first_dweight = cpu_product_new(program, &of_weight);
  return out->scores[kind] && out->dhidden[kind] && out->dweight[kind] && out->first_dweight;
}

/* NULL where factors are f32, or oneDNN has not all products of others. */
static const struct linear_products *products_new(struct backend_program *program,
                                                  const struct linear_sizes *sizes) {
  struct linear_products *products;
  int64_t rows = chunk_rows(sizes), last = sizes->rows % rows;
  if (!program->is_bf16)
    return NULL;
  products = arena_new(&program->memory, sizeof *products);
  if (!kind_products(program, sizes, CHUNK_WHOLE, rows, products) ||
      (last && !kind_products(program, sizes, CHUNK_LAST, last, products)))
    return NULL;
  return products;
}

static bool prepare_linear(struct backend_program *program, const struct node *node) {
  struct linear_sizes sizes = linear_sizes_of(program->graph, node);
  const struct linear_products *products = products_new(program, &sizes);
  int64_t rows = chunk_rows(&sizes), factor_rows = products ? (rows + 1) / 2 : 0;
  class_step_add(program, node,
                 &(struct class_wish){.scratch_elems = sizes.classes * (2 + rows + factor_rows),
                                      .n_bf16 = products ? LINEAR_WEIGHT + 1 : 0,
                                      .run = run_linear,
                                      .more = products});
  return true;
}

const struct cpu_kernel cpu_linear_cross_entropy = {"LinearCrossEntropy", prepare_linear};

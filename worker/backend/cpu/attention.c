/* ScaledAttention and its gradient, a block of scores at a time, small enough for the cache: several matrices
   of the stack at once, or some rows of one. Columns behind the last that a constant mask lets through are
   not computed, which halves the work under a causal mask. */
#include "model/ops/scaled_attention.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/product.h"
#include "worker/backend/cpu/reals.h"

enum { SCORES_MAX = 65536, ROWS_MIN = 32, ROWS_MAX = 128 }; /* of a block */

/* What is computed of a block: forward the first two, in the gradient all but the second. */
enum { SCORES, Y, DWEIGHTS, DVALUE, DQUERY, DKEY, PRODUCTS };

/* Blocks of one form: `group` matrices of the stack, rows [begin, begin + rows), the first `columns`. */
struct form {
  int64_t group, begin, rows, columns;
  const struct cpu_product *products[PRODUCTS];
};

struct attention {
  struct scaled_attention shape;
  int64_t mask_row, mask_column;
  int64_t group, block_rows, n_row_blocks;
  bool adds;          /* blocks add to dkey and dvalue, which begin as zeros */
  bool is_bf16;       /* factors are, softmax's weights and the gradient of scores included */
  struct form *forms; /* [n_row_blocks], then the same of the last group, if that is smaller */
  const float *mask;  /* of a run; NULL */
};

static struct product_view attention_view(int64_t rows, int64_t columns, int64_t stack_stride,
                                          int64_t row_stride, int64_t column_stride) {
  return (struct product_view){rows, columns, stack_stride, row_stride, column_stride};
}

/* Of dkey and dvalue: sums of blocks are f32. */
static dnnl_data_type_t attention_sums_type(const struct attention *a) {
  return a->is_bf16 && !a->adds ? dnnl_bf16 : dnnl_f32;
}

static bool form_products(struct backend_program *program, const struct attention *a, struct form *form,
                          bool is_grad) {
  const struct scaled_attention *shape = &a->shape;
  int64_t m = form->rows, n = form->columns, t = shape->t, s = shape->s, d = shape->d, e = shape->e;
  struct product_view scores = attention_view(m, n, m * n, n, 1),
                      scores_t = attention_view(n, m, m * n, 1, n);
  struct product_view query = attention_view(m, d, t * d, d, 1), query_t = attention_view(d, m, t * d, 1, d);
  struct product_view key = attention_view(d, n, d * s, s, 1), key_t = attention_view(n, d, d * s, 1, s);
  struct product_view value = attention_view(n, e, s * e, e, 1), value_t = attention_view(e, n, s * e, 1, e);
  struct product_view y = attention_view(m, e, t * e, e, 1);
  dnnl_data_type_t factors = a->is_bf16 ? dnnl_bf16 : dnnl_f32, sums = attention_sums_type(a);
  const struct {
    int product;
    bool is_forward, is_grad;
    struct cpu_product_shape shape;
  } rows[] = {
      {SCORES, true, true, {form->group, query, key, scores, (float)shape->scale, false, factors, dnnl_f32}},
      {Y, true, false, {form->group, scores, value, y, 1, false, factors, factors}},
      {DWEIGHTS, false, true, {form->group, y, value_t, scores, 1, false, factors, dnnl_f32}},
      {DVALUE, false, true, {form->group, scores_t, y, value, 1, a->adds, factors, sums}},
      {DQUERY, false, true, {form->group, scores, key_t, query, 1, false, factors, factors}},
      {DKEY, false, true, {form->group, query_t, scores, key, 1, a->adds, factors, sums}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!(is_grad ? rows[i].is_grad : rows[i].is_forward))
      continue;
    form->products[rows[i].product] = cpu_product_new(program, &rows[i].shape);
    if (!form->products[rows[i].product])
      return false;
  }
  return true;
}

/* How many columns rows [begin, begin + rows) need under a mask that is known and the same for the whole
 * stack. */
static int64_t columns_needed(const struct attention *a, const struct value *mask, int64_t begin,
                              int64_t rows) {
  int64_t columns = a->shape.s;
  const float *data = mask ? mask->data : NULL;
  if (!data || mask->kind != VALUE_CONSTANT || mask->shape.rank != 2 || a->mask_column == 0)
    return columns;
  for (; columns > 1; columns--)
    for (int64_t r = begin; r < begin + rows; r++)
      if (data[r * a->mask_row + columns - 1] != -INFINITY)
        return columns;
  return columns;
}

static bool forms_init(struct backend_program *program, struct attention *a, const struct value *mask,
                       bool is_grad) {
  int64_t tail = a->shape.stack % a->group;
  int64_t n = a->n_row_blocks * (tail ? 2 : 1);
  a->forms = arena_new(&program->memory, (size_t)n * sizeof *a->forms);
  for (int64_t i = 0; i < n; i++) {
    struct form *form = &a->forms[i];
    form->group = i < a->n_row_blocks ? a->group : tail;
    form->begin = i % a->n_row_blocks * a->block_rows;
    form->rows = a->shape.t - form->begin < a->block_rows ? a->shape.t - form->begin : a->block_rows;
    form->columns = columns_needed(a, mask, form->begin, form->rows);
    a->adds |= a->n_row_blocks > 1 || form->columns < a->shape.s;
  }
  for (int64_t i = 0; i < n; i++)
    if (!form_products(program, a, &a->forms[i], is_grad))
      return false;
  return true;
}

static struct attention *attention_of_type(struct backend_program *program, const struct node *node,
                                           bool is_grad, bool is_bf16) {
  struct attention *a = arena_new(&program->memory, sizeof *a);
  int64_t scores;
  a->is_bf16 = is_bf16;
  struct err err = ERR_NONE;
  if (scaled_attention_init(&a->shape, program->graph, node, is_grad, &err))
    return NULL;
  scaled_attention_mask_strides(&a->shape, &a->mask_row, &a->mask_column);
  scores = a->shape.t * a->shape.s;
  a->group = scores < SCORES_MAX && a->shape.t <= ROWS_MAX ? SCORES_MAX / scores : 1;
  a->group = a->group < a->shape.stack ? a->group : a->shape.stack;
  a->block_rows = SCORES_MAX / a->shape.s > ROWS_MIN ? SCORES_MAX / a->shape.s : ROWS_MIN;
  a->block_rows = a->block_rows < ROWS_MAX ? a->block_rows : ROWS_MAX;
  a->block_rows = a->block_rows < a->shape.t ? a->block_rows : a->shape.t;
  a->n_row_blocks = (a->shape.t + a->block_rows - 1) / a->block_rows;
  return forms_init(program, a, node_input(program->graph, node, is_grad ? 6 : 3), is_grad) ? a : NULL;
}

/* In f32 where oneDNN has not all products of bf16, or the result is to be exact. NULL if the kernel does not
   take the node. */
static struct attention *attention_new(struct backend_program *program, const struct node *node,
                                       bool is_grad) {
  struct attention *a = NULL;
  bool is_bf16 = true;
  for (int o = 0; o < (is_grad ? 3 : 1); o++)
    is_bf16 &= cpu_type(program, node->outputs[o]) == dnnl_bf16;
  if (is_bf16)
    a = attention_of_type(program, node, is_grad, true);
  return a ? a : attention_of_type(program, node, is_grad, false);
}

/* Element `elem` of an argument that has the factors' type. */
static void *factor_at(const struct attention *a, const struct cpu_step *step, int arg, int64_t elem) {
  return (char *)step->args[arg].data + elem * (a->is_bf16 ? 2 : 4);
}

/* Each form of the matrices from `index` on. */
static const struct form *forms_at(const struct attention *a, int64_t index) {
  return a->shape.stack - index < a->group ? a->forms + a->n_row_blocks : a->forms;
}

static const float *mask_row(const struct attention *a, const struct form *form, int64_t index, int64_t row) {
  return a->mask + scaled_attention_mask_at(&a->shape, index) + (form->begin + row) * a->mask_row;
}

VECTOR_VARIANTS static void row_add(float *row, const float *mask, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    row[j] += mask[j];
}

static void add_mask(const struct attention *a, const struct form *form, int64_t index, float *scores) {
  for (int64_t g = 0; g < form->group; g++)
    for (int64_t r = 0; r < form->rows; r++, scores += form->columns) {
      const float *mask = mask_row(a, form, index + g, r);
      if (a->mask_column)
        row_add(scores, mask, form->columns);
      else
        for (int64_t j = 0; j < form->columns; j++)
          scores[j] += *mask;
    }
}

/* Sums and maxima run in 16 lanes, combined in one order: the same bits on every instruction set. */
enum { LANES = 16 };

VECTOR_VARIANTS static float row_max(const float *row, int64_t n) {
  float lanes[LANES], greatest = -INFINITY;
  int64_t j = 0;
  for (int l = 0; l < LANES; l++)
    lanes[l] = -INFINITY;
  for (; j + LANES <= n; j += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] = row[j + l] > lanes[l] ? row[j + l] : lanes[l];
  for (; j < n; j++)
    greatest = row[j] > greatest ? row[j] : greatest;
  for (int l = 0; l < LANES; l++)
    greatest = lanes[l] > greatest ? lanes[l] : greatest;
  return greatest;
}

/* Each element becomes e^(element - from). Returns their sum. */
VECTOR_VARIANTS static float row_exp(float *row, int64_t n, float from) {
  float lanes[LANES] = {0}, sum = 0;
  int64_t j = 0;
  for (; j + LANES <= n; j += LANES)
    for (int l = 0; l < LANES; l++) {
      row[j + l] = exp_vector(row[j + l] - from);
      lanes[l] += row[j + l];
    }
  for (; j < n; j++) {
    row[j] = exp_vector(row[j] - from);
    sum += row[j];
  }
  for (int l = 0; l < LANES; l++)
    sum += lanes[l];
  return sum;
}

static void row_scale(float *row, int64_t n, float factor) {
  for (int64_t j = 0; j < n; j++)
    row[j] *= factor;
}

/* Scores become softmax's weights but for a factor, which is *sum; a row that is masked whole becomes zeros.
   Returns the logarithm of the softmax's denominator. */
static float row_softmax(float *row, int64_t n, float *sum) {
  float greatest = row_max(row, n);
  if (greatest == -INFINITY) {
    memset(row, 0, (size_t)n * sizeof *row);
    *sum = 1;
    return -INFINITY;
  }
  *sum = row_exp(row, n, greatest);
  return greatest + logf(*sum);
}

static int product_failed(const struct cpu_step *step, struct err *err) {
  return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
}

enum {
  FORWARD_QUERY,
  FORWARD_KEY,
  FORWARD_VALUE,
  FORWARD_Y,
  FORWARD_LOG_SUMS,
  FORWARD_SCORES,
  FORWARD_SUMS,
  FORWARD_WEIGHTS, /* in bf16; in f32 the scores become them */
  FORWARD_MASK
};

/* y of a block: the weights are divided by their sums as they are rounded, or y by them. */
static bool forward_product(const struct backend_program *program, const struct attention *a,
                            struct cpu_step *step, const struct form *form, int64_t index) {
  const struct scaled_attention *shape = &a->shape;
  int64_t n = form->columns, first = (index * shape->t + form->begin) * shape->e;
  const float *scores = step->args[FORWARD_SCORES].data, *sums = step->args[FORWARD_SUMS].data;
  const void *value = factor_at(a, step, FORWARD_VALUE, index * shape->s * shape->e);
  void *y = factor_at(a, step, FORWARD_Y, first), *weights = step->args[FORWARD_WEIGHTS].data;
  if (!a->is_bf16) {
    if (!cpu_product_run(program, form->products[Y], scores, value, y))
      return false;
    for (int64_t g = 0, i = 0; g < form->group; g++)
      for (int64_t r = 0; r < form->rows; r++, i++)
        row_scale((float *)y + (g * shape->t + r) * shape->e, shape->e, 1 / sums[i]);
    return true;
  }
  for (int64_t i = 0; i < form->group * form->rows; i++)
    reals_narrow(scores + i * n, n, 1 / sums[i], weights, i * n);
  return cpu_product_run(program, form->products[Y], weights, value, y);
}

static bool forward_block(const struct backend_program *program, const struct attention *a,
                          struct cpu_step *step, const struct form *form, int64_t index) {
  const struct scaled_attention *shape = &a->shape;
  int64_t row = index * shape->t + form->begin;
  const void *query = factor_at(a, step, FORWARD_QUERY, row * shape->d);
  const void *key = factor_at(a, step, FORWARD_KEY, index * shape->d * shape->s);
  float *log_sums = (float *)step->args[FORWARD_LOG_SUMS].data + row;
  float *scores = step->args[FORWARD_SCORES].data, *sums = step->args[FORWARD_SUMS].data;
  if (!cpu_product_run(program, form->products[SCORES], query, key, scores))
    return false;
  if (a->mask)
    add_mask(a, form, index, scores);
  for (int64_t g = 0, i = 0; g < form->group; g++)
    for (int64_t r = 0; r < form->rows; r++, i++)
      log_sums[g * shape->t + r] = row_softmax(scores + i * form->columns, form->columns, &sums[i]);
  return forward_product(program, a, step, form, index);
}

static int run_forward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  struct attention *a = step->details;
  (void)run;
  a->mask = step->n_args > FORWARD_MASK ? step->args[FORWARD_MASK].data : NULL;
  for (int64_t index = 0; index < a->shape.stack; index += a->group)
    for (int64_t block = 0; block < a->n_row_blocks; block++)
      if (!forward_block(program, a, step, forms_at(a, index) + block, index))
        return product_failed(step, err);
  return ERR_OK;
}

static bool prepare_forward(struct backend_program *program, const struct node *node) {
  struct attention *a = attention_new(program, node, false);
  struct cpu_step *step = cpu_step_new(program, node);
  if (!a)
    return false;
  dnnl_data_type_t factors = a->is_bf16 ? dnnl_bf16 : dnnl_f32;
  int64_t scores = a->group * a->block_rows * a->shape.s;
  step->run = run_forward;
  step->details = a;
  for (int i = 0; i < 3; i++)
    cpu_read_dense(program, step, node->inputs[i], factors);
  cpu_write_dense(program, step, node->outputs[0], factors);
  if (node->n_outputs > 1 && node->outputs[1] >= 0)
    cpu_write(program, step, 0, node->outputs[1], NULL);
  else
    cpu_scratch(program, step, a->shape.stack * a->shape.t, dnnl_f32);
  cpu_scratch(program, step, scores, dnnl_f32);
  cpu_scratch(program, step, a->group * a->block_rows, dnnl_f32);
  cpu_scratch(program, step, a->is_bf16 ? scores : 1, factors);
  if (node->n_inputs > 3 && node->inputs[3] >= 0)
    cpu_read(program, step, 0, node->inputs[3], NULL);
  cpu_step_end(program, step, NULL);
  return true;
}

enum {
  GRAD_DY,
  GRAD_QUERY,
  GRAD_KEY,
  GRAD_VALUE,
  GRAD_Y,
  GRAD_LOG_SUMS,
  GRAD_DQUERY,
  GRAD_DKEY,
  GRAD_DVALUE,
  GRAD_WEIGHTS,
  GRAD_DSCORES,
  GRAD_WEIGHTS_FACTOR, /* both in bf16; in f32 they are factors themselves */
  GRAD_DSCORES_FACTOR,
  GRAD_MASK
};

/* Of elements [at, at + n) of two tensors. */
static INLINED float dot_typed(const void *a, const void *b, bool is_bf16, int64_t at, int64_t n) {
  float lanes[LANES] = {0}, sum = 0;
  int64_t j = at, end = at + n;
  for (; j + LANES <= end; j += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] += real_at(a, j + l, is_bf16) * real_at(b, j + l, is_bf16);
  for (; j < end; j++)
    sum += real_at(a, j, is_bf16) * real_at(b, j, is_bf16);
  for (int l = 0; l < LANES; l++)
    sum += lanes[l];
  return sum;
}

VECTOR_VARIANTS static float row_dot(const void *a, const void *b, bool is_bf16, int64_t at, int64_t n) {
  return is_bf16 ? dot_typed(a, b, true, at, n) : dot_typed(a, b, false, at, n);
}

/* dscores = weights * (dweights - dy . y) * scale, in the place of dweights */
VECTOR_VARIANTS static void row_dscores(float *dweights, const float *weights, int64_t n, float along,
                                        float scale) {
  for (int64_t j = 0; j < n; j++)
    dweights[j] = weights[j] * (dweights[j] - along) * scale;
}

/* Softmax's weights again, from the scores and the logarithms of their sums. */
static void block_weights(const struct attention *a, const struct form *form, const float *log_sums,
                          float *scores) {
  int64_t n = form->columns;
  for (int64_t g = 0; g < form->group; g++)
    for (int64_t r = 0; r < form->rows; r++, scores += n) {
      float log_sum = log_sums[g * a->shape.t + r];
      if (log_sum == -INFINITY)
        memset(scores, 0, (size_t)n * sizeof *scores);
      else
        row_exp(scores, n, log_sum);
    }
}

/* Of the block whose first row is `first` of all. */
static void block_dscores(const struct attention *a, const struct cpu_step *step, const struct form *form,
                          int64_t first) {
  int64_t n = form->columns, e = a->shape.e;
  const void *dy = step->args[GRAD_DY].data, *y = step->args[GRAD_Y].data;
  const float *weights = step->args[GRAD_WEIGHTS].data;
  float *dscores = step->args[GRAD_DSCORES].data;
  for (int64_t g = 0; g < form->group; g++)
    for (int64_t r = 0; r < form->rows; r++, weights += n, dscores += n) {
      float along = row_dot(dy, y, a->is_bf16, (first + g * a->shape.t + r) * e, e);
      row_dscores(dscores, weights, n, along, (float)a->shape.scale);
    }
}

/* What is a block's factor: the f32 matrix of an argument, or it as bf16 in another one. */
static const void *block_factor(const struct attention *a, const struct cpu_step *step,
                                const struct form *form, int from, int to) {
  if (!a->is_bf16)
    return step->args[from].data;
  reals_narrow(step->args[from].data, form->group * form->rows * form->columns, 1, step->args[to].data, 0);
  return step->args[to].data;
}

/* Element `elem` of dkey or dvalue. */
static void *sum_at(const struct attention *a, const struct cpu_step *step, int arg, int64_t elem) {
  return (char *)step->args[arg].data + elem * (attention_sums_type(a) == dnnl_bf16 ? 2 : 4);
}

static bool grad_block(const struct backend_program *program, const struct attention *a,
                       struct cpu_step *step, const struct form *form, int64_t index) {
  const struct scaled_attention *shape = &a->shape;
  const struct cpu_product *const *products = form->products;
  int64_t row = index * shape->t + form->begin, keys = index * shape->d * shape->s;
  int64_t values = index * shape->s * shape->e;
  const void *dy = factor_at(a, step, GRAD_DY, row * shape->e);
  const void *query = factor_at(a, step, GRAD_QUERY, row * shape->d);
  const void *key = factor_at(a, step, GRAD_KEY, keys), *value = factor_at(a, step, GRAD_VALUE, values);
  float *weights = step->args[GRAD_WEIGHTS].data, *dscores = step->args[GRAD_DSCORES].data;
  if (!cpu_product_run(program, products[SCORES], query, key, weights))
    return false;
  if (a->mask)
    add_mask(a, form, index, weights);
  block_weights(a, form, (const float *)step->args[GRAD_LOG_SUMS].data + row, weights);
  if (!cpu_product_run(program, products[DWEIGHTS], dy, value, dscores))
    return false;
  block_dscores(a, step, form, row);
  const void *weights_factor = block_factor(a, step, form, GRAD_WEIGHTS, GRAD_WEIGHTS_FACTOR);
  const void *dscores_factor = block_factor(a, step, form, GRAD_DSCORES, GRAD_DSCORES_FACTOR);
  return cpu_product_run(program, products[DVALUE], weights_factor, dy,
                         sum_at(a, step, GRAD_DVALUE, values)) &&
         cpu_product_run(program, products[DQUERY], dscores_factor, key,
                         factor_at(a, step, GRAD_DQUERY, row * shape->d)) &&
         cpu_product_run(program, products[DKEY], query, dscores_factor, sum_at(a, step, GRAD_DKEY, keys));
}

static int run_grad(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  struct attention *a = step->details;
  const struct scaled_attention *shape = &a->shape;
  (void)run;
  a->mask = step->n_args > GRAD_MASK ? step->args[GRAD_MASK].data : NULL;
  if (a->adds) {
    memset(step->args[GRAD_DKEY].data, 0, (size_t)(shape->stack * shape->d * shape->s) * sizeof(float));
    memset(step->args[GRAD_DVALUE].data, 0, (size_t)(shape->stack * shape->s * shape->e) * sizeof(float));
  }
  for (int64_t index = 0; index < shape->stack; index += a->group)
    for (int64_t block = 0; block < a->n_row_blocks; block++)
      if (!grad_block(program, a, step, forms_at(a, index) + block, index))
        return product_failed(step, err);
  return ERR_OK;
}

static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct attention *a = attention_new(program, node, true);
  struct cpu_step *step = cpu_step_new(program, node);
  if (!a)
    return false;
  dnnl_data_type_t factors = a->is_bf16 ? dnnl_bf16 : dnnl_f32;
  int64_t scores = a->group * a->block_rows * a->shape.s;
  step->run = run_grad;
  step->details = a;
  for (int i = 0; i < 5; i++)
    cpu_read_dense(program, step, node->inputs[i], factors);
  cpu_read(program, step, 0, node->inputs[5], NULL);
  cpu_write_dense(program, step, node->outputs[0], factors);
  for (int o = 1; o < 3; o++)
    cpu_write_dense(program, step, node->outputs[o], attention_sums_type(a));
  for (int i = 0; i < 2; i++)
    cpu_scratch(program, step, scores, dnnl_f32);
  for (int i = 0; i < 2; i++)
    cpu_scratch(program, step, a->is_bf16 ? scores : 1, factors);
  if (node->n_inputs > 6 && node->inputs[6] >= 0)
    cpu_read(program, step, 0, node->inputs[6], NULL);
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_scaled_attention = {"ScaledAttention", prepare_forward};
const struct cpu_kernel cpu_scaled_attention_grad = {"ScaledAttentionGrad", prepare_grad};

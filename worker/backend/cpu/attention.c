/* ScaledAttention and its gradient: a block of rows of scores at a time, small enough for the cache, by
   oneDNN's matrix products. Columns behind the last that a block's mask lets through are not computed, which
   halves the work under a causal mask. */
#include "common/ops/scaled_attention.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/exp.h"

enum { SCORES_MAX = 65536, ROWS_MIN = 16 }; /* of a block */

struct attention {
  struct scaled_attention shape;
  int64_t block_rows, mask_row, mask_column;
};

/* Rows [begin, begin + rows) of the matrix at `index` of the stack. */
struct score_block {
  int64_t index, begin, rows;
  int64_t columns;   /* computed */
  const float *mask; /* of its first score; NULL */
};

static struct score_block block_at(const struct attention *a, const float *mask, int64_t index,
                                   int64_t begin) {
  const struct scaled_attention *shape = &a->shape;
  struct score_block block = {.index = index, .begin = begin, .columns = shape->s};
  block.rows = shape->t - begin < a->block_rows ? shape->t - begin : a->block_rows;
  if (!mask)
    return block;
  block.mask = mask + scaled_attention_mask_at(shape, index) + begin * a->mask_row;
  if (a->mask_column == 0)
    return block;
  for (; block.columns > 1; block.columns--)
    for (int64_t r = 0; r < (a->mask_row ? block.rows : 1); r++)
      if (block.mask[r * a->mask_row + block.columns - 1] != -INFINITY)
        return block;
  return block;
}

static int multiply(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  return dnnl_sgemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) != dnnl_success;
}

/* f32[rows, columns], dense: scale * query x key + mask */
static int block_scores(const struct attention *a, const struct score_block *block, const float *query,
                        const float *key, float *scores) {
  const struct scaled_attention *shape = &a->shape;
  int64_t n = block->columns;
  if (multiply('N', 'N', block->rows, n, shape->d, (float)shape->scale,
               query + (block->index * shape->t + block->begin) * shape->d, shape->d,
               key + block->index * shape->d * shape->s, shape->s, 0, scores, n))
    return 1;
  for (int64_t r = 0; r < block->rows && block->mask; r++)
    for (int64_t j = 0; j < n; j++)
      scores[r * n + j] += block->mask[r * a->mask_row + j * a->mask_column];
  return 0;
}

/* Each row of scores becomes e^(score - log_sum): 16 sums side by side, added in the same order everywhere.
 */
VECTOR_VARIANTS static void row_exp(float *row, int64_t n, float from) {
  for (int64_t j = 0; j < n; j++)
    row[j] = exp_vector(row[j] - from);
}

VECTOR_VARIANTS static float row_max(const float *row, int64_t n) {
  float lanes[16], greatest = -INFINITY;
  int64_t j = 0;
  for (int l = 0; l < 16; l++)
    lanes[l] = -INFINITY;
  for (; j + 16 <= n; j += 16)
    for (int l = 0; l < 16; l++)
      lanes[l] = row[j + l] > lanes[l] ? row[j + l] : lanes[l];
  for (; j < n; j++)
    greatest = row[j] > greatest ? row[j] : greatest;
  for (int l = 0; l < 16; l++)
    greatest = lanes[l] > greatest ? lanes[l] : greatest;
  return greatest;
}

VECTOR_VARIANTS static float row_sum(const float *row, int64_t n) {
  float lanes[16] = {0}, sum = 0;
  int64_t j = 0;
  for (; j + 16 <= n; j += 16)
    for (int l = 0; l < 16; l++)
      lanes[l] += row[j + l];
  for (; j < n; j++)
    sum += row[j];
  for (int l = 0; l < 16; l++)
    sum += lanes[l];
  return sum;
}

/* Scores become softmax's weights; a row that is masked whole becomes zeros. */
static void block_softmax(const struct score_block *block, float *scores, float *log_sums) {
  int64_t n = block->columns;
  for (int64_t r = 0; r < block->rows; r++) {
    float *row = scores + r * n, greatest = row_max(row, n), sum;
    if (greatest == -INFINITY) {
      memset(row, 0, (size_t)n * sizeof *row);
      log_sums[r] = -INFINITY;
      continue;
    }
    row_exp(row, n, greatest);
    sum = row_sum(row, n);
    for (int64_t j = 0; j < n; j++)
      row[j] /= sum;
    log_sums[r] = greatest + logf(sum);
  }
}

static int failed(const struct cpu_step *step, struct err *err) {
  return node_error(step->node, err, ERR_INTERNAL, "oneDNN failed to multiply matrices");
}

enum { FORWARD_QUERY, FORWARD_KEY, FORWARD_VALUE, FORWARD_Y, FORWARD_LOG_SUMS, FORWARD_SCORES, FORWARD_MASK };

static int run_forward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  const struct attention *a = step->details;
  const struct scaled_attention *shape = &a->shape;
  const float *mask = step->n_args > FORWARD_MASK ? step->args[FORWARD_MASK].data : NULL;
  float *y = step->args[FORWARD_Y].data, *scores = step->args[FORWARD_SCORES].data;
  float *log_sums = step->args[FORWARD_LOG_SUMS].data;
  (void)program;
  (void)run;
  for (int64_t index = 0; index < shape->stack; index++)
    for (int64_t begin = 0; begin < shape->t; begin += a->block_rows) {
      struct score_block block = block_at(a, mask, index, begin);
      int64_t row = index * shape->t + begin;
      if (block_scores(a, &block, step->args[FORWARD_QUERY].data, step->args[FORWARD_KEY].data, scores))
        return failed(step, err);
      block_softmax(&block, scores, log_sums + row);
      if (multiply('N', 'N', block.rows, shape->e, block.columns, 1, scores, block.columns,
                   (const float *)step->args[FORWARD_VALUE].data + index * shape->s * shape->e, shape->e, 0,
                   y + row * shape->e, shape->e))
        return failed(step, err);
    }
  return ERR_OK;
}

/* Geometry and the size of blocks; NULL if the node is not one that the kernel takes. */
static struct attention *attention_new(struct backend_program *program, const struct node *node, int first,
                                       int mask) {
  struct attention *a = arena_new(&program->memory, sizeof *a);
  struct err err = ERR_NONE;
  if (scaled_attention_init(&a->shape, program->graph, node, first, mask, &err))
    return NULL;
  scaled_attention_mask_strides(&a->shape, &a->mask_row, &a->mask_column);
  a->block_rows = SCORES_MAX / a->shape.s < ROWS_MIN ? ROWS_MIN : SCORES_MAX / a->shape.s;
  a->block_rows = a->block_rows < a->shape.t ? a->block_rows : a->shape.t;
  return a;
}

static void scratch(struct backend_program *program, struct cpu_step *step, int64_t elems) {
  dnnl_memory_desc_t layout = layout_dense(1, &elems);
  cpu_write(program, step, 0, -1, &layout);
}

static bool prepare_forward(struct backend_program *program, const struct node *node) {
  struct attention *a = attention_new(program, node, 0, 3);
  struct cpu_step *step = cpu_step_new(program, node);
  if (!a)
    return false;
  step->run = run_forward;
  step->details = a;
  for (int i = 0; i < 3; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  if (node->n_outputs > 1 && node->outputs[1] >= 0)
    cpu_write(program, step, 0, node->outputs[1], NULL);
  else
    scratch(program, step, a->shape.stack * a->shape.t);
  scratch(program, step, a->block_rows * a->shape.s);
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
  GRAD_MASK
};

/* dscores = weights * (dweights - dy . y) * scale, in the place of dweights */
VECTOR_VARIANTS static void row_dscores(float *dweights, const float *weights, int64_t n, float along,
                                        float scale) {
  for (int64_t j = 0; j < n; j++)
    dweights[j] = weights[j] * (dweights[j] - along) * scale;
}

static void block_dscores(const struct attention *a, const struct score_block *block, const float *dy,
                          const float *y, const float *weights, float *dscores) {
  int64_t n = block->columns, e = a->shape.e;
  for (int64_t r = 0; r < block->rows; r++) {
    double along = 0;
    for (int64_t c = 0; c < e; c++)
      along += (double)dy[r * e + c] * y[r * e + c];
    row_dscores(dscores + r * n, weights + r * n, n, (float)along, (float)a->shape.scale);
  }
}

static void block_weights(const struct score_block *block, const float *log_sums, float *scores) {
  int64_t n = block->columns;
  for (int64_t r = 0; r < block->rows; r++)
    if (log_sums[r] == -INFINITY)
      memset(scores + r * n, 0, (size_t)n * sizeof *scores);
    else
      row_exp(scores + r * n, n, log_sums[r]);
}

static int grad_block(const struct attention *a, struct cpu_step *step, const struct score_block *block) {
  const struct scaled_attention *shape = &a->shape;
  int64_t row = block->index * shape->t + block->begin, n = block->columns, m = block->rows;
  int64_t s = shape->s, d = shape->d, e = shape->e;
  const float *dy = (const float *)step->args[GRAD_DY].data + row * e;
  const float *query = (const float *)step->args[GRAD_QUERY].data + row * d;
  const float *key = (const float *)step->args[GRAD_KEY].data + block->index * d * s;
  const float *value = (const float *)step->args[GRAD_VALUE].data + block->index * s * e;
  float *weights = step->args[GRAD_WEIGHTS].data, *dscores = step->args[GRAD_DSCORES].data;
  float *dquery = (float *)step->args[GRAD_DQUERY].data + row * d;
  float *dkey = (float *)step->args[GRAD_DKEY].data + block->index * d * s;
  float *dvalue = (float *)step->args[GRAD_DVALUE].data + block->index * s * e;
  if (block_scores(a, block, step->args[GRAD_QUERY].data, step->args[GRAD_KEY].data, weights))
    return 1;
  block_weights(block, (const float *)step->args[GRAD_LOG_SUMS].data + row, weights);
  if (multiply('N', 'T', m, n, e, 1, dy, e, value, e, 0, dscores, n))
    return 1;
  block_dscores(a, block, dy, (const float *)step->args[GRAD_Y].data + row * e, weights, dscores);
  return multiply('T', 'N', n, e, m, 1, weights, n, dy, e, 1, dvalue, e) ||
         multiply('N', 'T', m, d, n, 1, dscores, n, key, s, 0, dquery, d) ||
         multiply('T', 'N', d, n, m, 1, query, d, dscores, n, 1, dkey, s);
}

static int run_grad(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  const struct attention *a = step->details;
  const struct scaled_attention *shape = &a->shape;
  const float *mask = step->n_args > GRAD_MASK ? step->args[GRAD_MASK].data : NULL;
  (void)program;
  (void)run;
  memset(step->args[GRAD_DKEY].data, 0, (size_t)(shape->stack * shape->d * shape->s) * sizeof(float));
  memset(step->args[GRAD_DVALUE].data, 0, (size_t)(shape->stack * shape->s * shape->e) * sizeof(float));
  for (int64_t index = 0; index < shape->stack; index++)
    for (int64_t begin = 0; begin < shape->t; begin += a->block_rows) {
      struct score_block block = block_at(a, mask, index, begin);
      if (grad_block(a, step, &block))
        return failed(step, err);
    }
  return ERR_OK;
}

static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct attention *a = attention_new(program, node, 1, 6);
  struct cpu_step *step = cpu_step_new(program, node);
  if (!a)
    return false;
  step->run = run_grad;
  step->details = a;
  for (int i = 0; i < 6; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  for (int o = 0; o < 3; o++)
    cpu_write(program, step, 0, node->outputs[o], NULL);
  scratch(program, step, a->block_rows * a->shape.s);
  scratch(program, step, a->block_rows * a->shape.s);
  if (node->n_inputs > 6 && node->inputs[6] >= 0)
    cpu_read(program, step, 0, node->inputs[6], NULL);
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_scaled_attention = {"ScaledAttention", prepare_forward};
const struct cpu_kernel cpu_scaled_attention_grad = {"ScaledAttentionGrad", prepare_grad};

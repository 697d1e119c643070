/* Evaluation of Einstein sums: terms are multiplied from left to right, each pair as a stack of matrix
   products over the labels that both and the rest need (batch), that one of them has (rows, columns) and that
   are summed (inner). Operands are copied only where strides do not make them matrices. */
#include <string.h>

#include "model/ops/shared/einsum.h"

/* A tensor by labels: each at most once. */
struct view {
  const float *data;
  int n, label[EINSUM_LABELS];
  int64_t stride[EINSUM_LABELS]; /* by label; 0 where it has not that label */
  bool has[EINSUM_LABELS];
};

/* An ordered choice of labels. */
struct labels {
  int n, label[EINSUM_LABELS];
};

struct run {
  const struct einsum *einsum;
  einsum_multiply_fn *multiply; /* NULL: only counts the memory that it would need */
  float *scratch;
  int64_t scratch_elems; /* taken so far; -1: too many */
};

static const int64_t ELEMS_MAX = INT64_C(1) << 36;

static float *scratch_take(struct run *run, int64_t elems) {
  float *taken = run->multiply ? run->scratch + run->scratch_elems : NULL;
  if (run->scratch_elems >= 0)
    run->scratch_elems += elems;
  if (elems < 0 || run->scratch_elems > ELEMS_MAX)
    run->scratch_elems = -1;
  return taken;
}

static void labels_add(struct labels *labels, int label) {
  labels->label[labels->n++] = label;
}

/* The product of the labels' sizes; -1: too large. */
static int64_t labels_elems(const struct einsum *einsum, const struct labels *labels) {
  int64_t elems = 1;
  for (int i = 0; i < labels->n; i++)
    if (__builtin_mul_overflow(elems, einsum->size[labels->label[i]], &elems) || elems > ELEMS_MAX)
      return -1;
  return elems;
}

static void view_add(struct view *view, int label, int64_t stride) {
  if (!view->has[label])
    view->label[view->n++] = label;
  view->has[label] = true;
  view->stride[label] += stride;
}

/* A dense tensor of these labels in order. One that is too large is noticed when its memory is taken. */
static struct view view_dense(const struct einsum *einsum, const float *data, const struct labels *labels) {
  struct view view = {.data = data};
  uint64_t stride = 1;
  for (int i = labels->n - 1; i >= 0; i--) {
    view_add(&view, labels->label[i], (int64_t)stride);
    stride *= (uint64_t)einsum->size[labels->label[i]];
  }
  return view;
}

/* A dense operand or result; a label that repeats walks the diagonal. */
static struct view view_of_term(const struct einsum *einsum, const struct einsum_term *term,
                                const float *data) {
  struct view view = {.data = data};
  int64_t stride = 1;
  for (int d = term->rank - 1; d >= 0; d--)
    if (term->label[d] >= 0) {
      view_add(&view, term->label[d], stride);
      stride *= einsum->size[term->label[d]];
    }
  return view;
}

/* The sum of a tensor over labels [0, n). */
static double sum_over(const struct einsum *einsum, const struct view *from, const struct labels *labels,
                       int n, int64_t at) {
  int label;
  double sum = 0.0;
  if (n == 0)
    return from->data[at];
  label = labels->label[n - 1];
  for (int64_t i = 0; i < einsum->size[label]; i++)
    sum += sum_over(einsum, from, labels, n - 1, at + i * from->stride[label]);
  return sum;
}

/* Counts offsets in two tensors over an ordered choice of labels. */
struct walk {
  const struct einsum *einsum;
  const struct labels *labels;
  const struct view *views[2];
  int64_t index[EINSUM_LABELS], at[2];
};

/* To the next combination of the first n labels, the last of them fastest; false behind the last. */
static bool walk_next(struct walk *walk, int n) {
  for (int i = n - 1; i >= 0; i--) {
    int label = walk->labels->label[i];
    bool is_over = ++walk->index[i] == walk->einsum->size[label];
    int64_t steps = is_over ? 1 - walk->einsum->size[label] : 1;
    for (int v = 0; v < 2; v++)
      walk->at[v] += steps * walk->views[v]->stride[label];
    if (!is_over)
      return true;
    walk->index[i] = 0;
  }
  return false;
}

/* to = from over `labels`, summed over what from has besides. */
static void view_copy(const struct einsum *einsum, const struct view *from, const struct labels *labels,
                      const struct view *to, float *out) {
  struct walk walk = {.einsum = einsum, .labels = labels, .views = {from, to}};
  int outer = labels->n > 0 ? labels->n - 1 : 0;
  int last = labels->n > 0 ? labels->label[outer] : -1;
  int64_t n = last >= 0 ? einsum->size[last] : 1;
  int64_t from_step = last >= 0 ? from->stride[last] : 0, to_step = last >= 0 ? to->stride[last] : 0;
  struct labels summed = {0};
  bool is_kept[EINSUM_LABELS] = {false};
  for (int i = 0; i < labels->n; i++)
    is_kept[labels->label[i]] = true;
  for (int i = 0; i < from->n; i++)
    if (!is_kept[from->label[i]])
      labels_add(&summed, from->label[i]);
  do {
    const float *x = from->data + walk.at[0];
    float *y = out + walk.at[1];
    if (summed.n == 0)
      for (int64_t i = 0; i < n; i++)
        y[i * to_step] = x[i * from_step];
    else
      for (int64_t i = 0; i < n; i++)
        y[i * to_step] = (float)sum_over(einsum, from, &summed, summed.n, walk.at[0] + i * from_step);
  } while (walk_next(&walk, outer));
}

/* True if the labels, in that order, are one dimension of the view: element i at i * *stride. */
static bool is_one_dimension(const struct einsum *einsum, const struct view *view,
                             const struct labels *labels, int64_t *stride) {
  int64_t expected = -1;
  *stride = 1;
  for (int i = labels->n - 1; i >= 0; i--) {
    int label = labels->label[i];
    if (einsum->size[label] == 1)
      continue;
    if (expected < 0)
      expected = *stride = view->stride[label];
    if (view->stride[label] != expected)
      return false;
    expected *= einsum->size[label];
  }
  return true;
}

/* The labels of a pair of tensors by what they are to their product. */
struct pair {
  const struct view *a, *b;
  struct labels batch, rows, cols, inner;
};

static struct pair pair_of(const struct view *a, const struct view *b, const bool *is_needed) {
  struct pair pair = {.a = a, .b = b};
  for (int i = a->n - 1; i >= 0; i--) { /* views list the fastest first */
    int label = a->label[i];
    if (b->has[label])
      labels_add(is_needed[label] ? &pair.batch : &pair.inner, label);
    else if (is_needed[label])
      labels_add(&pair.rows, label);
  }
  for (int i = b->n - 1; i >= 0; i--)
    if (!a->has[b->label[i]] && is_needed[b->label[i]])
      labels_add(&pair.cols, b->label[i]);
  return pair;
}

static struct labels labels_join(const struct labels *a, const struct labels *b, const struct labels *c) {
  struct labels all = *a;
  for (int i = 0; i < b->n; i++)
    labels_add(&all, b->label[i]);
  for (int i = 0; i < c->n; i++)
    labels_add(&all, c->label[i]);
  return all;
}

/* A view over `batch` of matrices; the first of them. */
struct stack {
  struct view view;
  struct matrix first;
};

/* An operand as a stack of matrices [rows, cols], itself or copied. */
static struct stack stack_of(struct run *run, const struct view *from, const struct labels *batch,
                             const struct labels *rows, const struct labels *cols) {
  const struct einsum *einsum = run->einsum;
  struct stack stack = {.view = *from};
  struct matrix *matrix = &stack.first;
  *matrix = (struct matrix){.rows = labels_elems(einsum, rows), .cols = labels_elems(einsum, cols)};
  if (from->n != batch->n + rows->n + cols->n || !is_one_dimension(einsum, from, rows, &matrix->row_stride) ||
      !is_one_dimension(einsum, from, cols, &matrix->col_stride) ||
      (matrix->row_stride != 1 && matrix->col_stride != 1)) {
    struct labels order = labels_join(batch, rows, cols);
    float *packed = scratch_take(run, labels_elems(einsum, &order));
    stack.view = view_dense(einsum, packed, &order);
    if (run->multiply)
      view_copy(einsum, from, &order, &stack.view, packed);
    matrix->row_stride = matrix->cols;
    matrix->col_stride = 1;
  }
  matrix->data = stack.view.data;
  return stack;
}

/* out, a view that holds the pair's batch, rows and cols as matrices with adjacent columns, = the product. */
static void multiply_pair(struct run *run, const struct pair *pair, const struct view *to, float *out) {
  struct stack a = stack_of(run, pair->a, &pair->batch, &pair->rows, &pair->inner);
  struct stack b = stack_of(run, pair->b, &pair->batch, &pair->inner, &pair->cols);
  struct matrix left = a.first, right = b.first;
  struct walk walk = {.einsum = run->einsum, .labels = &pair->batch, .views = {&a.view, &b.view}};
  struct walk to_walk = {.einsum = run->einsum, .labels = &pair->batch, .views = {to, to}};
  int64_t out_stride;
  if (!run->multiply)
    return;
  is_one_dimension(run->einsum, to, &pair->rows, &out_stride);
  do {
    left.data = a.view.data + walk.at[0];
    right.data = b.view.data + walk.at[1];
    run->multiply(left, right, false, out + to_walk.at[0], out_stride > right.cols ? out_stride : right.cols);
    walk_next(&to_walk, pair->batch.n);
  } while (walk_next(&walk, pair->batch.n));
}

/* Whether a product can be written where it belongs. */
static bool is_writable(const struct einsum *einsum, const struct view *to, const struct pair *pair) {
  int64_t row_stride, col_stride;
  return to->n == pair->batch.n + pair->rows.n + pair->cols.n &&
         is_one_dimension(einsum, to, &pair->rows, &row_stride) &&
         is_one_dimension(einsum, to, &pair->cols, &col_stride) && col_stride == 1;
}

/* Writes the product to `out`, seen as `to`, of the pair or of the pair swapped, if its order allows. */
static bool pair_write(struct run *run, const struct pair pairs[2], const struct view *to, float *out) {
  for (int p = 0; p < 2; p++)
    if (is_writable(run->einsum, to, &pairs[p])) {
      multiply_pair(run, &pairs[p], to, out);
      return true;
    }
  return false;
}

/* The product in scratch. */
static struct view pair_product(struct run *run, const struct pair *pair) {
  struct labels order = labels_join(&pair->batch, &pair->rows, &pair->cols);
  float *out = scratch_take(run, labels_elems(run->einsum, &order));
  struct view result = view_dense(run->einsum, out, &order);
  multiply_pair(run, pair, &result, out);
  return result;
}

/* Labels that the output or the terms from `next` on have. */
static void mark_needed(const struct einsum *einsum, int next, bool *is_needed) {
  memset(is_needed, 0, EINSUM_LABELS * sizeof *is_needed);
  for (int d = 0; d < einsum->out.rank; d++)
    if (einsum->out.label[d] >= 0)
      is_needed[einsum->out.label[d]] = true;
  for (int t = next; t < einsum->n_terms; t++)
    for (int d = 0; d < einsum->terms[t].rank; d++)
      if (einsum->terms[t].label[d] >= 0)
        is_needed[einsum->terms[t].label[d]] = true;
}

static void einsum_evaluate(struct run *run, const struct tensor *in, float *out) {
  const struct einsum *einsum = run->einsum;
  struct view to = view_of_term(einsum, &einsum->out, out);
  struct view product = view_of_term(einsum, &einsum->terms[0], in ? in[0].data : NULL);
  struct labels order = {0};
  bool is_needed[EINSUM_LABELS], is_done = false;
  for (int t = 1; t < einsum->n_terms && run->scratch_elems >= 0; t++) {
    struct view before = product, next = view_of_term(einsum, &einsum->terms[t], in ? in[t].data : NULL);
    bool is_last = t + 1 == einsum->n_terms && to.n == einsum->out.rank;
    struct pair pairs[2];
    mark_needed(einsum, t + 1, is_needed);
    pairs[0] = pair_of(&before, &next, is_needed);
    pairs[1] = pair_of(&next, &before, is_needed);
    is_done = is_last && pair_write(run, pairs, &to, out);
    if (!is_done)
      product = pair_product(run, &pairs[0]);
  }
  if (is_done || !run->multiply)
    return;
  for (int i = to.n - 1; i >= 0; i--)
    labels_add(&order, to.label[i]);
  if (to.n < einsum->out.rank) {
    struct shape shape = einsum_out_shape(einsum);
    memset(out, 0, (size_t)shape_elems(&shape) * sizeof *out);
  }
  view_copy(einsum, &product, &order, &to, out);
}

int64_t einsum_scratch_elems(const struct einsum *einsum) {
  struct run run = {.einsum = einsum};
  einsum_evaluate(&run, NULL, NULL);
  return run.scratch_elems;
}

void einsum_run(const struct einsum *einsum, einsum_multiply_fn *multiply, const struct tensor *in,
                float *out, float *scratch) {
  struct run run = {.einsum = einsum, .multiply = multiply, .scratch = scratch};
  einsum_evaluate(&run, in, out);
}

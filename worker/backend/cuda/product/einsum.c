/* Einsum and its gradient: terms are multiplied from left to right, each pair as a stack of matrix products
   over the labels that both and the rest need (batch), that one of them has (rows, columns) and that are
   summed (inner). Operands are brought into that order by copies, which also sum what nobody else needs;
   where one lies so already there is no copy. */
#include "model/ops/shared/einsum.h"

#include "worker/backend/cuda/product/matrix.h"
#include "worker/backend/cuda/product/product.h"

enum { TASKS_MAX = 4 * EINSUM_TERMS_MAX };

/* An ordered choice of labels. */
struct labels {
  int n, label[EINSUM_LABELS];
};

/* A tensor by labels, each at most once. */
struct view {
  int arg; /* of the step */
  struct labels labels;
  int64_t stride[EINSUM_LABELS]; /* by label; 0 where it has not that label */
};

/* What the step does, in order: a copy of a, or a product of a and b. */
struct task {
  struct cuda_product *product; /* NULL: a copy */
  struct cuda_walk walk;
  int a, b, out; /* arguments */
};

struct plan {
  struct backend_program *program;
  const struct einsum *einsum;
  struct task tasks[TASKS_MAX];
  int n_tasks;
  int64_t scratch_elems[TASKS_MAX]; /* of the arguments behind the node's tensors */
  int n_scratch;
  int workspace; /* argument; -1: none */
  bool is_cleared, fits;
};

static bool has_label(const struct labels *labels, int label) {
  for (int i = 0; i < labels->n; i++)
    if (labels->label[i] == label)
      return true;
  return false;
}

static void label_add(struct labels *labels, int label) {
  labels->label[labels->n++] = label;
}

static struct labels labels_join(const struct labels *a, const struct labels *b, const struct labels *c) {
  struct labels all = *a;
  for (int i = 0; i < b->n; i++)
    label_add(&all, b->label[i]);
  for (int i = 0; i < c->n; i++)
    label_add(&all, c->label[i]);
  return all;
}

static int64_t elems_of(const struct einsum *einsum, const struct labels *labels) {
  int64_t elems = 1;
  for (int i = 0; i < labels->n; i++)
    elems *= einsum->size[labels->label[i]];
  return elems;
}

/* An operand or the result; a label that repeats walks the diagonal. */
static struct view view_of_term(const struct einsum *einsum, const struct einsum_term *term, int arg) {
  struct view view = {.arg = arg};
  int64_t stride = 1;
  for (int d = term->rank - 1; d >= 0; d--)
    if (term->label[d] >= 0) {
      view.stride[term->label[d]] += stride;
      stride *= einsum->size[term->label[d]];
    }
  for (int d = 0; d < term->rank; d++)
    if (term->label[d] >= 0 && !has_label(&view.labels, term->label[d]))
      label_add(&view.labels, term->label[d]);
  return view;
}

static struct view view_dense(const struct einsum *einsum, const struct labels *labels, int arg) {
  struct view view = {.arg = arg, .labels = *labels};
  int64_t stride = 1;
  for (int i = labels->n - 1; i >= 0; i--) {
    view.stride[labels->label[i]] = stride;
    stride *= einsum->size[labels->label[i]];
  }
  return view;
}

/* Whether it has just these labels, dense in that order. */
static bool is_dense(const struct einsum *einsum, const struct view *view, const struct labels *labels) {
  struct view dense = view_dense(einsum, labels, -1);
  for (int i = 0; i < labels->n; i++) {
    int label = labels->label[i];
    if (!has_label(&view->labels, label) ||
        (einsum->size[label] > 1 && view->stride[label] != dense.stride[label]))
      return false;
  }
  return view->labels.n == labels->n;
}

static int scratch_add(struct plan *plan, int64_t elems) {
  plan->scratch_elems[plan->n_scratch] = elems;
  return plan->einsum->n_terms + 1 + plan->n_scratch++;
}

static struct task *task_add(struct plan *plan, int a, int b, int out) {
  CHECK(plan->n_tasks < TASKS_MAX);
  struct task *task = &plan->tasks[plan->n_tasks++];
  *task = (struct task){.a = a, .b = b, .out = out};
  return task;
}

static void walk_add(struct plan *plan, struct cuda_walk *walk, int label, const struct view *from,
                     const struct view *to) {
  if (walk->rank == CUDA_WALK_MAX) {
    plan->fits = false;
    return;
  }
  walk->dim[walk->rank] = plan->einsum->size[label];
  walk->from[walk->rank] = from->stride[label];
  walk->to[walk->rank++] = to->stride[label];
}

/* to = from over its labels, summed over what from has besides. */
static void copy_add(struct plan *plan, const struct view *from, const struct view *to) {
  struct cuda_walk *walk = &task_add(plan, from->arg, -1, to->arg)->walk;
  for (int i = 0; i < to->labels.n; i++)
    walk_add(plan, walk, to->labels.label[i], from, to);
  walk->kept = walk->rank;
  for (int i = 0; i < from->labels.n; i++)
    if (!has_label(&to->labels, from->labels.label[i]))
      walk_add(plan, walk, from->labels.label[i], from, to);
}

/* The labels of a pair of tensors by what they are to their product. */
struct pair {
  struct labels batch, rows, columns, inner;
};

static struct pair pair_of(const struct view *a, const struct view *b, const bool *is_needed) {
  struct pair pair = {0};
  for (int i = 0; i < a->labels.n; i++) {
    int label = a->labels.label[i];
    if (has_label(&b->labels, label))
      label_add(is_needed[label] ? &pair.batch : &pair.inner, label);
    else if (is_needed[label])
      label_add(&pair.rows, label);
  }
  for (int i = 0; i < b->labels.n; i++)
    if (!has_label(&a->labels, b->labels.label[i]) && is_needed[b->labels.label[i]])
      label_add(&pair.columns, b->labels.label[i]);
  return pair;
}

/* The labels of a stack of matrices. */
struct stack_labels {
  const struct labels *batch, *rows, *columns;
};

/* An operand as a stack of matrices: itself, if they lie as they are or transposed, or a copy. Returns its
   argument. */
static int as_matrices(struct plan *plan, const struct view *from, struct stack_labels by,
                       struct cuda_matrix *matrix) {
  const struct einsum *einsum = plan->einsum;
  struct labels order = labels_join(by.batch, by.rows, by.columns),
                turned = labels_join(by.batch, by.columns, by.rows);
  bool is_transposed = !is_dense(einsum, from, &order) && is_dense(einsum, from, &turned);
  *matrix =
      cuda_matrix_dense(CUDA_F32, elems_of(einsum, by.rows), elems_of(einsum, by.columns), is_transposed);
  if (is_transposed || is_dense(einsum, from, &order))
    return from->arg;
  struct view packed = view_dense(einsum, &order, scratch_add(plan, elems_of(einsum, &order)));
  copy_add(plan, from, &packed);
  return packed.arg;
}

/* a times b: into `to`, if that has the product's order; else into scratch. */
static struct view views_contract(struct plan *plan, const struct view *a, const struct view *b,
                                  const bool *is_needed, const struct view *to) {
  const struct einsum *einsum = plan->einsum;
  struct pair pair = pair_of(a, b, is_needed);
  struct labels order = labels_join(&pair.batch, &pair.rows, &pair.columns);
  bool is_placed = to && is_dense(einsum, to, &order);
  struct cuda_product_shape shape = {.stack = elems_of(einsum, &pair.batch), .alpha = 1};
  int left = as_matrices(plan, a, (struct stack_labels){&pair.batch, &pair.rows, &pair.inner}, &shape.a);
  int right = as_matrices(plan, b, (struct stack_labels){&pair.batch, &pair.inner, &pair.columns}, &shape.b);
  int arg = is_placed ? to->arg : scratch_add(plan, elems_of(einsum, &order));
  shape.out = cuda_matrix_dense(CUDA_F32, shape.a.rows, shape.b.columns, false);
  struct task *task = task_add(plan, left, right, arg);
  task->product = cuda_product_new(plan->program, &shape);
  plan->fits = plan->fits && task->product;
  return view_dense(einsum, &order, arg);
}

/* Labels that the output or the terms from `next` on have. */
static void mark_needed(const struct einsum *einsum, int next, bool *is_needed) {
  for (int label = 0; label < EINSUM_LABELS; label++)
    is_needed[label] = false;
  for (int d = 0; d < einsum->out.rank; d++)
    if (einsum->out.label[d] >= 0)
      is_needed[einsum->out.label[d]] = true;
  for (int t = next; t < einsum->n_terms; t++)
    for (int d = 0; d < einsum->terms[t].rank; d++)
      if (einsum->terms[t].label[d] >= 0)
        is_needed[einsum->terms[t].label[d]] = true;
}

static void plan_init(struct plan *plan, struct backend_program *program, const struct einsum *einsum) {
  struct view to = view_of_term(einsum, &einsum->out, einsum->n_terms);
  struct view product = view_of_term(einsum, &einsum->terms[0], 0);
  bool is_needed[EINSUM_LABELS], has_diagonal = to.labels.n < einsum->out.rank;
  plan->program = program;
  plan->einsum = einsum;
  plan->fits = true;
  for (int t = 1; t < einsum->n_terms && plan->fits; t++) {
    struct view next = view_of_term(einsum, &einsum->terms[t], t);
    bool is_last = t + 1 == einsum->n_terms && !has_diagonal;
    mark_needed(einsum, t + 1, is_needed);
    product = views_contract(plan, &product, &next, is_needed, is_last ? &to : NULL);
  }
  plan->is_cleared = has_diagonal;
  if (product.arg != to.arg && plan->fits)
    copy_add(plan, &product, &to);
}

static int task_enqueue(const struct plan *plan, const struct task *task, const struct cuda_step *step,
                        cudaStream_t stream, struct err *err) {
  struct cuda_tensor a = step->args[task->a].tensor, out = step->args[task->out].tensor;
  if (task->product) {
    struct cuda_product_io io = {.a = a.data, .b = step->args[task->b].tensor.data, .out = out.data};
    if (plan->workspace >= 0)
      io.workspace = step->args[plan->workspace].tensor.data;
    return cuda_product_enqueue(task->product, step->node, &io, stream, err);
  }
  a.type = out.type = CUDA_F32; /* scratch is bytes */
  cuda_walk_sum_launch(task->walk, a, out, stream);
  return ERR_OK;
}

static int enqueue_einsum(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct plan *plan = step->details;
  const struct cuda_tensor *out = &step->args[plan->einsum->n_terms].tensor;
  (void)program;
  if (plan->is_cleared &&
      cuda_check(step->node, cudaMemsetAsync(out->data, 0, (size_t)out->elems * sizeof(float), stream),
                 "clear", err))
    return err->code;
  for (int t = 0; t < plan->n_tasks; t++)
    if (task_enqueue(plan, &plan->tasks[t], step, stream, err))
      return err->code;
  return ERR_OK;
}

static void add_scratch(struct plan *plan, struct cuda_step *step) {
  size_t workspace_bytes = 0;
  for (int i = 0; i < plan->n_scratch; i++)
    cuda_scratch(plan->program, step, (size_t)plan->scratch_elems[i] * sizeof(float));
  for (int t = 0; t < plan->n_tasks; t++)
    if (plan->tasks[t].product && cuda_product_workspace_bytes(plan->tasks[t].product) > workspace_bytes)
      workspace_bytes = cuda_product_workspace_bytes(plan->tasks[t].product);
  plan->workspace = workspace_bytes > 0 ? cuda_scratch(plan->program, step, workspace_bytes) : -1;
}

static bool prepare_einsum(struct backend_program *program, const struct node *node) {
  struct arena *memory = cuda_view(program)->memory;
  struct einsum *einsum = arena_new(memory, sizeof *einsum);
  struct plan *plan = arena_new(memory, sizeof *plan);
  struct err err = ERR_NONE;
  if (einsum_init(einsum, cuda_view(program)->graph, node, &err))
    return false;
  plan_init(plan, program, einsum);
  if (!plan->fits)
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue_einsum;
  step->details = plan;
  for (int t = 0; t < einsum->n_terms; t++)
    cuda_read(program, step, node->inputs[t], CUDA_F32, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_F32, CUDA_DENSE);
  add_scratch(plan, step);
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_einsum = {.op = "Einsum", .prepare = prepare_einsum};
const struct cuda_kernel cuda_kernel_einsum_grad = {.op = "EinsumGrad", .prepare = prepare_einsum};

/* MatMul with numpy's semantics (ONNX 1..13): stacks of matrices broadcast, vectors become rows or columns.
 */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/matrix.h"

/* a [batch..., m, k], b [batch..., k, n] -> y [batch..., m, n], vectors made matrices. out: the shape of the
   result proper, without the dimensions that vectors gained. A transposed operand lies as [batch..., k, m] or
   [batch..., n, k]. */
struct matmul {
  struct shape a, b, y, out;
  bool is_a_transposed, is_b_transposed;
};

/* The dimensions before the last two. */
static struct shape batch_of(const struct shape *shape) {
  struct shape batch = *shape;
  batch.rank -= 2;
  return batch;
}

/* Only the products of gradients may have their operands transposed. */
static bool is_own(const struct node *node) {
  return *node->op->domain != '\0';
}

static void swap_last(struct shape *shape) {
  int64_t rows = shape->dim[shape->rank - 2];
  shape->dim[shape->rank - 2] = shape->dim[shape->rank - 1];
  shape->dim[shape->rank - 1] = rows;
}

/* a, b: shapes of the operands. */
static int matmul_init(struct matmul *mm, const struct node *node, const struct shape *a,
                       const struct shape *b, struct err *err) {
  struct shape a_batch, b_batch;
  char left[128], right[128];
  bool is_fit = a->rank >= 1 && b->rank >= 1;
  mm->a = a->rank == 1 ? (struct shape){.rank = 2, .dim = {1, a->dim[0]}} : *a;
  mm->b = b->rank == 1 ? (struct shape){.rank = 2, .dim = {b->dim[0], 1}} : *b;
  mm->is_a_transposed = is_fit && is_own(node) && node_attr_int(node, "transA", 0) != 0;
  mm->is_b_transposed = is_fit && is_own(node) && node_attr_int(node, "transB", 0) != 0;
  if (mm->is_a_transposed)
    swap_last(&mm->a);
  if (mm->is_b_transposed)
    swap_last(&mm->b);
  if (is_fit) {
    a_batch = batch_of(&mm->a);
    b_batch = batch_of(&mm->b);
    is_fit = mm->a.dim[mm->a.rank - 1] == mm->b.dim[mm->b.rank - 2] &&
             broadcast_shapes(&a_batch, &b_batch, &mm->y);
  }
  if (!is_fit)
    return node_error(node, err, ERR_INVALID, "shapes %s and %s do not multiply",
                      shape_text(a, left, sizeof left), shape_text(b, right, sizeof right));
  mm->out = mm->y;
  mm->y.dim[mm->y.rank++] = mm->a.dim[mm->a.rank - 2];
  mm->y.dim[mm->y.rank++] = mm->b.dim[mm->b.rank - 1];
  if (a->rank > 1)
    mm->out.dim[mm->out.rank++] = mm->a.dim[mm->a.rank - 2];
  if (b->rank > 1)
    mm->out.dim[mm->out.rank++] = mm->b.dim[mm->b.rank - 1];
  return ERR_OK;
}

static int matmul_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct matmul mm;
  if (infer_check_f32(graph, node, err) ||
      matmul_init(&mm, node, &node_input(graph, node, 0)->shape, &node_input(graph, node, 1)->shape, err))
    return err->code;
  return infer_f32(graph, node, 0, &mm.out, err);
}

static int as_shape(struct graph *graph, int x, const struct shape *shape) {
  return shape_is_same(&graph->values[x].shape, shape) ? x : backward_reshape(graph, x, shape);
}

static int add_product(struct graph *graph, int a, bool is_a_transposed, int b, bool is_b_transposed) {
  struct attr attrs[] = {attr_of_int("transA", is_a_transposed), attr_of_int("transB", is_b_transposed)};
  return backward_node(graph, "MatMulGrad", VALUES(a, b), (struct attr_list){attrs, 2});
}

/* Gives `grad` the input's own shape. */
static void add_grad(struct autodiff *ad, struct graph *graph, const struct node *node, int input, int grad) {
  struct shape own = node_input(graph, node, input)->shape;
  autodiff_add(ad, node, input, as_shape(graph, grad, &own));
}

/* A stack a [batch..., m, k] times one matrix b [k, n] is one product of a as [batch m, k]. */
static void backward_flat(struct autodiff *ad, struct graph *graph, const struct node *node,
                          const struct matmul *mm) {
  int64_t k = mm->b.dim[0], n = mm->b.dim[1], rows = shape_elems(&mm->a) / (k ? k : 1);
  struct shape flat_a = {.rank = 2, .dim = {rows, k}}, flat_y = {.rank = 2, .dim = {rows, n}};
  struct attr trans_a = attr_of_int("transA", 1), trans_b = attr_of_int("transB", 1);
  int dy = as_shape(graph, autodiff_grad(ad, node, 0), &flat_y);
  if (autodiff_wants(ad, node, 1)) {
    int a = as_shape(graph, node->inputs[0], &flat_a);
    add_grad(ad, graph, node, 1,
             backward_sum_to(graph, backward_node(graph, "Gemm", VALUES(a, dy), ATTR_LIST(trans_a)), &mm->b));
  }
  if (autodiff_wants(ad, node, 0)) {
    int b = as_shape(graph, node->inputs[1], &mm->b);
    int da = backward_node(graph, "Gemm", VALUES(dy, b), ATTR_LIST(trans_b));
    add_grad(ad, graph, node, 0, backward_sum_to(graph, da, &flat_a));
  }
}

static int matmul_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  struct matmul mm;
  int dy, a, b;
  if (matmul_init(&mm, node, &node_input(graph, node, 0)->shape, &node_input(graph, node, 1)->shape, err))
    return err->code;
  if (mm.b.rank == 2) {
    backward_flat(ad, graph, node, &mm);
    return ERR_OK;
  }
  dy = as_shape(graph, autodiff_grad(ad, node, 0), &mm.y);
  a = as_shape(graph, node->inputs[0], &mm.a);
  b = as_shape(graph, node->inputs[1], &mm.b);
  if (autodiff_wants(ad, node, 1))
    add_grad(ad, graph, node, 1, backward_sum_to(graph, add_product(graph, a, true, dy, false), &mm.b));
  if (autodiff_wants(ad, node, 0))
    add_grad(ad, graph, node, 0, backward_sum_to(graph, add_product(graph, dy, false, b, true), &mm.a));
  return ERR_OK;
}

/* shape: of the operand as it is multiplied. */
static struct matrix matrix_at(const struct tensor *tensor, const struct shape *shape, bool is_transposed,
                               int64_t index) {
  int64_t rows = shape->dim[shape->rank - 2], cols = shape->dim[shape->rank - 1];
  const float *data = (const float *)tensor->data + index * rows * cols;
  return is_transposed ? (struct matrix){data, rows, cols, 1, rows}
                       : (struct matrix){data, rows, cols, cols, 1};
}

static int matmul_ref(const struct op_call *call, struct err *err) {
  struct shape y_batch, a_batch, b_batch;
  struct broadcast walk;
  struct matmul mm;
  float *y = call->out[0].data;
  if (matmul_init(&mm, call->node, &call->in[0].shape, &call->in[1].shape, err))
    return err->code;
  y_batch = batch_of(&mm.y);
  a_batch = batch_of(&mm.a);
  b_batch = batch_of(&mm.b);
  broadcast_init(&walk, &y_batch, &a_batch, &b_batch);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++) {
      struct matrix a = matrix_at(&call->in[0], &mm.a, mm.is_a_transposed, walk.at[0] + j * walk.step[0]);
      struct matrix b = matrix_at(&call->in[1], &mm.b, mm.is_b_transposed, walk.at[1] + j * walk.step[1]);
      matrix_multiply(a, b, y);
      y += a.rows * b.cols;
    }
  return ERR_OK;
}

static double matmul_multiply_adds(const struct graph *graph, const struct node *node) {
  const struct shape *a = &node_input(graph, node, 0)->shape;
  return infer_output_elems(graph, node, 0) * (double)a->dim[a->rank - 1];
}

static const struct op_case matmul_cases[] = {
    {.inputs = "f32[3,4] f32[4,5]"},
    {.inputs = "f32[2,3,4] f32[2,4,5]"},
    {.inputs = "f32[2,3,4] f32[4,5]"},
    {.inputs = "f32[3,4] f32[2,4,5]"},
    {.inputs = "f32[2,1,3,4] f32[1,3,4,2]"},
    {.inputs = "f32[4] f32[4]"},
    {.inputs = "f32[4] f32[4,3]"},
    {.inputs = "f32[4] f32[2,4,3]"},
    {.inputs = "f32[3,4] f32[4]"},
    {.inputs = "f32[2,3,4] f32[4]"},
    {.inputs = "f32[s,m,k] f32[t,k,n]", .draw = "m=1..4 k=1..5 n=1..4 s=1|2|3,1 t=1|2|1,2"},
    {.inputs = "f32[m,k] f32[s,k,n]", .draw = "m=1..4 k=1..5 n=1..4 s=1|3|2,2"},
    {.inputs = "f32[k] f32[s]", .draw = "k=1..5 s=k|k,3|2,k,3"},
    {0},
};

static const struct op_def matmul_grad;
static const struct op_def *const matmul_gradients[] = {&matmul_grad, NULL};

const struct op_def op_MatMul = {
    .name = "MatMul",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = matmul_infer,
    .backward = matmul_backward,
    .ref = matmul_ref,
    .multiply_adds = matmul_multiply_adds,
    .cases = matmul_cases,
    .gradients = matmul_gradients,
};

/* a, b -> a' x b', over broadcast batch dimensions; transA and transB: whether the last two dimensions of
   that operand are swapped */
static const struct op_def matmul_grad = {
    .name = "MatMulGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = matmul_infer,
    .ref = matmul_ref,
};

/* MatMul, its gradient, and Gemm. Operands are read where they lie: a transpose is a matter of strides. */
#include <string.h>

#include "worker/backend/cuda/product/epilogue.h"
#include "worker/backend/cuda/product/matrix.h"

enum { A, B, OUT, C }; /* arguments of a step; C where there is one, then scratch */

/* One step: `count` products of one shape at different places, and what Gemm adds where no epilogue does. */
struct multiply {
  struct cuda_product *product;
  struct cuda_fusion fusion;
  int64_t count;
  int64_t (*offset_bytes)[3];   /* of a, b and out, for each product */
  bool is_alone;                /* something is added first: nothing that follows is done along with it */
  int bias, kept, c, workspace; /* arguments; -1: none */
  struct cuda_addend addend;    /* of argument c */
};

static void *arg_data(const struct cuda_step *step, int arg) {
  return arg >= 0 ? step->args[arg].tensor.data : NULL;
}

static int enqueue_products(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  const struct multiply *multiply = step->details;
  const struct cuda_arg *args = step->args;
  struct cuda_tensor out = args[OUT].tensor;
  int code = ERR_OK;
  (void)program;
  for (int64_t i = 0; i < multiply->count && !code; i++) {
    const int64_t *offset = multiply->offset_bytes[i];
    struct cuda_product_io io = {.a = (const char *)args[A].tensor.data + offset[A],
                                 .b = (const char *)args[B].tensor.data + offset[B],
                                 .out = (char *)out.data + offset[OUT],
                                 .bias = arg_data(step, multiply->bias),
                                 .kept = arg_data(step, multiply->kept),
                                 .workspace = arg_data(step, multiply->workspace)};
    code = cuda_product_enqueue(multiply->product, step->node, &io, stream, err);
  }
  if (!code && multiply->c >= 0) {
    struct cuda_addend addend = multiply->addend;
    addend.c = args[multiply->c].tensor;
    addend.columns = out.dim[out.rank - 1];
    addend.rows = out.elems / addend.columns;
    cuda_add_scaled_launch(out, &addend, stream);
  }
  return code;
}

static struct multiply *multiply_new(struct backend_program *program, int64_t count) {
  struct arena *memory = cuda_view(program)->memory;
  struct multiply *multiply = arena_new(memory, sizeof *multiply);
  multiply->count = count;
  multiply->offset_bytes = arena_new(memory, (size_t)count * sizeof *multiply->offset_bytes);
  multiply->bias = multiply->kept = multiply->c = multiply->workspace = -1;
  return multiply;
}

/* The product with as much of what follows as cuBLASLt does along with it; sets multiply->fusion. shape:
   without an epilogue. False if there is no such product at all. */
static bool product_init(struct backend_program *program, struct multiply *multiply, const struct node *node,
                         struct cuda_product_shape *shape, int bias) {
  enum cuda_type plain_type = shape->out.type;
  struct cuda_fusion plain = {.bias = bias, .out = node->outputs[0], .kept = -1};
  plain.epilogue = bias >= 0 ? CUDA_EPILOGUE_BIAS : CUDA_EPILOGUE_NONE;
  const struct cuda_fusion tries[] = {cuda_fusion_find(program, node, bias, shape->out.columns),
                                      plain,
                                      {.bias = -1, .out = plain.out, .kept = -1}};
  for (size_t i = 0; i < sizeof tries / sizeof *tries && !multiply->product; i++) {
    if (i == 0 && (multiply->is_alone || shape->stack > 1 || multiply->count > 1))
      continue;
    shape->epilogue = tries[i].epilogue;
    shape->out.type = i == 0 ? cuda_type_of(program, tries[i].out) : plain_type;
    multiply->fusion = tries[i];
    multiply->product = cuda_product_new(program, shape);
  }
  return multiply->product != NULL;
}

static struct cuda_step *step_begin(struct backend_program *program, const struct node *node,
                                    struct multiply *multiply) {
  enum cuda_type type = cuda_factor_type(program);
  const struct cuda_fusion *fusion = &multiply->fusion;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue_products;
  step->details = multiply;
  cuda_read(program, step, node->inputs[0], type, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], type, CUDA_DENSE);
  cuda_write(program, step, fusion->out, CUDA_ANY_TYPE, CUDA_DENSE);
  if (fusion->epilogue != CUDA_EPILOGUE_NONE)
    multiply->bias = cuda_read(program, step, fusion->bias, step->args[OUT].tensor.type, CUDA_DENSE);
  if (fusion->kept >= 0)
    multiply->kept = cuda_write(program, step, fusion->kept, CUDA_ANY_TYPE, CUDA_DENSE);
  for (int i = 0; i < fusion->n_nodes; i++)
    cuda_pass_over(program, node, fusion->nodes[i]);
  return step;
}

static void step_finish(struct backend_program *program, struct cuda_step *step) {
  struct multiply *multiply = step->details;
  size_t workspace_bytes = cuda_product_workspace_bytes(multiply->product);
  if (workspace_bytes > 0)
    multiply->workspace = cuda_scratch(program, step, workspace_bytes);
  cuda_step_end(program, step);
}

static void read_c(struct backend_program *program, struct cuda_step *step, const struct value *c,
                   float beta) {
  struct multiply *multiply = step->details;
  int64_t columns = c->shape.rank > 0 ? c->shape.dim[c->shape.rank - 1] : 1;
  int64_t rows = c->shape.rank > 1 ? c->shape.dim[0] : 1;
  multiply->c = cuda_read(program, step, step->node->inputs[2], CUDA_ANY_TYPE, CUDA_DENSE);
  multiply->addend =
      (struct cuda_addend){.row_stride = rows > 1 ? columns : 0, .column_stride = columns > 1, .beta = beta};
}

/* Gemm: A, B, [C] -> alpha * A' x B' + beta * C */
static bool prepare_gemm(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *c = node_input(graph, node, 2);
  const int64_t *out = node_output(graph, node, 0)->shape.dim;
  bool is_a_transposed = node_attr_int(node, "transA", 0) != 0;
  float beta = node_attr_float(node, "beta", 1);
  int64_t inner = node_input(graph, node, 0)->shape.dim[!is_a_transposed];
  enum cuda_type type = cuda_factor_type(program);
  struct multiply *multiply = multiply_new(program, 1);
  struct cuda_product_shape shape = {
      .stack = 1,
      .a = cuda_matrix_dense(type, out[0], inner, is_a_transposed),
      .b = cuda_matrix_dense(type, inner, out[1], node_attr_int(node, "transB", 0) != 0),
      .out = cuda_matrix_dense(cuda_type_of(program, node->outputs[0]), out[0], out[1], false),
      .alpha = node_attr_float(node, "alpha", 1)};
  bool is_bias = c && beta == 1 && cuda_is_bias(c, out[1]); /* what is not, is added behind the product */
  multiply->is_alone = c && !is_bias;
  if (!product_init(program, multiply, node, &shape, is_bias ? node->inputs[2] : -1))
    return false;
  struct cuda_step *step = step_begin(program, node, multiply);
  if (c && beta != 0 && multiply->fusion.bias != node->inputs[2])
    read_c(program, step, c, beta);
  step_finish(program, step);
  return true;
}

/* Batch dimensions of a MatMul, those that step evenly in all three joined; the innermost first. */
struct batch {
  int rank;
  int64_t dim[RANK_MAX], stride[RANK_MAX][3]; /* in matrices */
};

static void batch_add(struct batch *batch, int64_t dim, const int64_t *stride) {
  int last = batch->rank - 1;
  bool joins = last >= 0;
  for (int i = 0; i < 3 && joins; i++)
    joins = stride[i] == batch->stride[last][i] * batch->dim[last];
  if (dim == 1)
    return;
  if (joins) {
    batch->dim[last] *= dim;
    return;
  }
  batch->dim[batch->rank] = dim;
  memcpy(batch->stride[batch->rank++], stride, 3 * sizeof *stride);
}

/* Shapes whose vectors have been made matrices; out_rank: that of the product as matrices. */
static void batch_init(struct batch *batch, const struct shape *a, const struct shape *b) {
  int64_t matrices[3] = {1, 1, 1};
  int rank = a->rank > b->rank ? a->rank : b->rank;
  *batch = (struct batch){0};
  for (int d = 3; d <= rank; d++) { /* from the last */
    int64_t own[2] = {d <= a->rank ? a->dim[a->rank - d] : 1, d <= b->rank ? b->dim[b->rank - d] : 1};
    int64_t dim = own[0] > own[1] ? own[0] : own[1];
    const int64_t stride[3] = {own[0] > 1 ? matrices[0] : 0, own[1] > 1 ? matrices[1] : 0, matrices[2]};
    batch_add(batch, dim, stride);
    matrices[0] *= own[0];
    matrices[1] *= own[1];
    matrices[2] *= dim;
  }
}

/* A stack that is too great becomes several, where it has a divisor. */
static void batch_limit(struct batch *batch) {
  int64_t part = CUDA_STACK_MAX, dim = batch->dim[0];
  if (batch->rank == 0 || dim <= CUDA_STACK_MAX)
    return;
  while (dim % part != 0)
    part--;
  if (part == 1)
    return;
  for (int d = batch->rank++; d > 0; d--) {
    batch->dim[d] = batch->dim[d - 1];
    memcpy(batch->stride[d], batch->stride[d - 1], sizeof batch->stride[d]);
  }
  batch->dim[0] = part;
  batch->dim[1] = dim / part;
  for (int i = 0; i < 3; i++)
    batch->stride[1][i] = batch->stride[0][i] * part;
}

static struct shape as_matrices(const struct shape *shape, bool is_right) {
  if (shape->rank > 1)
    return *shape;
  return (struct shape){.rank = 2, .dim = {is_right ? shape->dim[0] : 1, is_right ? 1 : shape->dim[0]}};
}

/* Places of the products that one stack does not cover; the greatest power of two that all are multiples of.
 */
static void products_place(struct multiply *multiply, const struct batch *batch,
                           const struct cuda_product_shape *shape, unsigned *align_bytes) {
  const struct cuda_matrix *matrices[] = {&shape->a, &shape->b, &shape->out};
  for (int64_t i = 0; i < multiply->count; i++)
    for (int m = 0; m < 3; m++) {
      int64_t at = 0, rest = i;
      for (int d = 1; d < batch->rank; d++) {
        at += rest % batch->dim[d] * batch->stride[d][m];
        rest /= batch->dim[d];
      }
      at *= matrices[m]->rows * matrices[m]->columns * (matrices[m]->type == CUDA_BF16 ? 2 : 4);
      multiply->offset_bytes[i][m] = at;
      while (at % align_bytes[m] != 0)
        align_bytes[m] /= 2;
    }
}

static bool prepare_batches(struct backend_program *program, const struct node *node, bool is_a_transposed,
                            bool is_b_transposed) {
  const struct graph *graph = cuda_view(program)->graph;
  struct shape a = as_matrices(&node_input(graph, node, 0)->shape, false);
  struct shape b = as_matrices(&node_input(graph, node, 1)->shape, true);
  enum cuda_type type = cuda_factor_type(program);
  int64_t rows = a.dim[a.rank - 2 + is_a_transposed], inner = a.dim[a.rank - 1 - is_a_transposed];
  int64_t columns = b.dim[b.rank - 1 - is_b_transposed], count = 1;
  unsigned align_bytes[3] = {256, 256, 256};
  struct batch batch;
  if (b.rank == 2 && !is_a_transposed) { /* against one matrix, a batch is one tall matrix */
    rows = shape_elems(&a) / inner;
    a = (struct shape){.rank = 2, .dim = {rows, inner}};
  }
  batch_init(&batch, &a, &b);
  batch_limit(&batch);
  struct cuda_product_shape shape = {
      .stack = batch.rank > 0 ? batch.dim[0] : 1,
      .a = cuda_matrix_dense(type, rows, inner, is_a_transposed),
      .b = cuda_matrix_dense(type, inner, columns, is_b_transposed),
      .out = cuda_matrix_dense(cuda_type_of(program, node->outputs[0]), rows, columns, false),
      .alpha = 1};
  for (int d = 1; d < batch.rank; d++)
    count *= batch.dim[d];
  struct multiply *multiply = multiply_new(program, count);
  products_place(multiply, &batch, &shape, align_bytes);
  struct cuda_matrix *matrices[] = {&shape.a, &shape.b, &shape.out};
  for (int m = 0; m < 3; m++) {
    matrices[m]->align_bytes = align_bytes[m];
    matrices[m]->stack_stride *= batch.rank > 0 ? batch.stride[0][m] : 1;
  }
  if (!product_init(program, multiply, node, &shape, -1))
    return false;
  step_finish(program, step_begin(program, node, multiply));
  return true;
}

/* MatMul: A, B -> A x B over broadcast batch dimensions */
static bool prepare_matmul(struct backend_program *program, const struct node *node) {
  return prepare_batches(program, node, false, false);
}

/* MatMulGrad: the same of operands whose matrices may be transposed */
static bool prepare_matmul_grad(struct backend_program *program, const struct node *node) {
  return prepare_batches(program, node, node_attr_int(node, "transA", 0) != 0,
                         node_attr_int(node, "transB", 0) != 0);
}

const struct cuda_kernel cuda_kernel_gemm = {.op = "Gemm", .prepare = prepare_gemm};
const struct cuda_kernel cuda_kernel_matmul = {.op = "MatMul", .prepare = prepare_matmul};
const struct cuda_kernel cuda_kernel_matmul_grad = {.op = "MatMulGrad", .prepare = prepare_matmul_grad};

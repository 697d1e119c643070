/* MatMul and Gemm as oneDNN matmuls. Operands are read where they lie: a transpose is a matter of strides. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"

/* out = alpha * a x b [+ bias] over equal batch dimensions; a broadcast batch dimension is 1. */
struct product {
  int a, b, bias, out; /* values; bias -1: none */
  dnnl_memory_desc_t a_layout, b_layout, bias_layout, out_layout;
  float alpha;
};

static void swap_last(dnnl_memory_desc_t *layout) {
  int order[DNNL_MAX_NDIMS];
  dnnl_memory_desc_t swapped;
  for (int d = 0; d < layout->ndims; d++)
    order[d] = d;
  order[layout->ndims - 1] = layout->ndims - 2;
  order[layout->ndims - 2] = layout->ndims - 1;
  CHECK(dnnl_memory_desc_permute_axes(&swapped, layout, order) == dnnl_success);
  *layout = swapped;
}

static dnnl_primitive_desc_t typed_describe(struct backend_program *program, const struct product *product) {
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t desc = NULL;
  if (dnnl_matmul_desc_init(&matmul, &product->a_layout, &product->b_layout,
                            product->bias >= 0 ? &product->bias_layout : NULL, &product->out_layout))
    return NULL;
  if (product->alpha == 1)
    return cpu_describe(program, &matmul, NULL, NULL);
  if (!dnnl_primitive_attr_clone(&attr, program->attr) &&
      !dnnl_primitive_attr_set_output_scales(attr, 1, 0, &product->alpha))
    desc = cpu_describe(program, &matmul, attr, NULL);
  dnnl_primitive_attr_destroy(attr);
  return desc;
}

static void product_set_types(struct product *product, dnnl_data_type_t factors, dnnl_data_type_t out) {
  product->a_layout.data_type = product->b_layout.data_type = factors;
  product->out_layout.data_type = out;
}

/* In the program's types, or in f32 where oneDNN has no product of them. out: in which the result may be. */
static dnnl_primitive_desc_t product_describe(struct backend_program *program, struct product *product,
                                              dnnl_data_type_t out) {
  dnnl_primitive_desc_t desc = NULL;
  product_set_types(product, dnnl_bf16, out);
  if (program->is_bf16)
    desc = typed_describe(program, product);
  if (cpu_rank(desc) != CPU_RANK_REFERENCE)
    return desc;
  product_set_types(product, dnnl_f32, dnnl_f32);
  return typed_describe(program, product);
}

static void product_step(struct backend_program *program, const struct product *product,
                         struct cpu_step *step) {
  int a = cpu_buffer_dense(program, step->node, product->a, product->a_layout.data_type);
  int b = cpu_buffer_dense(program, step->node, product->b, product->b_layout.data_type);
  cpu_use(program, step, DNNL_ARG_SRC, a, &product->a_layout);
  cpu_use(program, step, DNNL_ARG_WEIGHTS, b, &product->b_layout);
  cpu_write(program, step, DNNL_ARG_DST, product->out, &product->out_layout);
  if (product->bias >= 0)
    cpu_use(program, step, DNNL_ARG_BIAS, cpu_buffer_in(program, step->node, product->bias, NULL),
            &product->bias_layout);
}

/* Gemm's C and beta where a oneDNN bias does not do: out[m,n] += beta * c, c with strides 0 where it is
   broadcast. */
struct gemm_tail {
  int64_t rows, cols, row_stride, col_stride;
  float beta;
};

enum { GEMM_A, GEMM_B, GEMM_OUT, GEMM_C }; /* arguments of its step */

static int run_gemm_tail(struct backend_program *program, struct cpu_step *step,
                         const struct backend_run *run, struct err *err) {
  const struct gemm_tail *tail = step->details;
  const float *c = step->args[GEMM_C].data;
  float *out = step->args[GEMM_OUT].data;
  int code = cpu_execute(program, step, run, err);
  for (int64_t m = 0; m < tail->rows && !code; m++)
    for (int64_t n = 0; n < tail->cols; n++)
      out[m * tail->cols + n] += tail->beta * c[m * tail->row_stride + n * tail->col_stride];
  return code;
}

static void gemm_add_tail(struct backend_program *program, struct cpu_step *step, int c,
                          const struct product *product, float beta) {
  const struct shape *shape = &program->graph->values[c].shape;
  int64_t rows = shape->rank > 1 ? shape->dim[0] : 1;
  int64_t cols = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
  struct gemm_tail *tail = arena_new(&program->memory, sizeof *tail);
  *tail = (struct gemm_tail){.rows = product->out_layout.dims[0],
                             .cols = product->out_layout.dims[1],
                             .row_stride = rows > 1 ? cols : 0,
                             .col_stride = cols > 1,
                             .beta = beta};
  cpu_read(program, step, 0, c, NULL);
  step->details = tail;
  step->run = run_gemm_tail;
}

/* A matrix as its last two dimensions say, transposed if asked for. */
static dnnl_memory_desc_t matrix_layout(int ndims, const int64_t *dims, bool is_transposed) {
  dnnl_memory_desc_t layout = layout_dense(ndims, dims);
  if (is_transposed)
    swap_last(&layout);
  return layout;
}

/* Gemm: A, B, [C] -> alpha * A' x B' + beta * C */
static bool prepare_gemm(struct backend_program *program, const struct node *node) {
  const struct graph *graph = program->graph;
  const struct value *a = node_input(graph, node, 0), *b = node_input(graph, node, 1);
  const struct value *c = node_input(graph, node, 2), *out = node_output(graph, node, 0);
  float beta = node_attr_float(node, "beta", 1);
  struct product product = {.a = node->inputs[0], .b = node->inputs[1], .bias = -1, .out = node->outputs[0]};
  product.alpha = node_attr_float(node, "alpha", 1);
  if (a->shape.rank != 2 || b->shape.rank != 2 || (c && c->shape.rank > 2))
    return false;
  product.a_layout = matrix_layout(2, a->shape.dim, node_attr_int(node, "transA", 0) != 0);
  product.b_layout = matrix_layout(2, b->shape.dim, node_attr_int(node, "transB", 0) != 0);
  product.out_layout = layout_dense(2, out->shape.dim);
  bool is_bias = c && product.alpha == 1 && beta == 1 && c->shape.rank > 0 &&
                 shape_elems(&c->shape) == out->shape.dim[1] &&
                 c->shape.dim[c->shape.rank - 1] == out->shape.dim[1];
  if (is_bias) {
    product.bias = node->inputs[2];
    product.bias_layout = layout_dense(2, (const int64_t[]){1, out->shape.dim[1]});
  }
  bool has_tail = c && !is_bias && beta != 0;
  dnnl_primitive_desc_t desc =
      product_describe(program, &product, has_tail ? dnnl_f32 : cpu_type(program, product.out));
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  product_step(program, &product, step);
  if (has_tail)
    gemm_add_tail(program, step, node->inputs[2], &product, beta);
  cpu_step_end(program, step, desc);
  return true;
}

/* Dimensions of a MatMul operand with `ndims` of them: 1s in front; a vector is a row on the left, a column
   on the right. */
static void operand_dims(const struct shape *shape, bool is_right, int ndims, int64_t *dims) {
  int at = ndims;
  if (shape->rank == 1 && is_right)
    dims[--at] = 1;
  for (int d = shape->rank - 1; d >= 0; d--)
    dims[--at] = shape->dim[d];
  while (at > 0)
    dims[--at] = 1;
}

static bool prepare_batches(struct backend_program *program, const struct node *node, bool is_a_transposed,
                            bool is_b_transposed) {
  const struct shape *a = &node_input(program->graph, node, 0)->shape;
  const struct shape *b = &node_input(program->graph, node, 1)->shape;
  struct product product = {
      .a = node->inputs[0], .b = node->inputs[1], .bias = -1, .out = node->outputs[0], .alpha = 1};
  int64_t a_dims[RANK_MAX], b_dims[RANK_MAX], out_dims[RANK_MAX];
  int ndims = a->rank > b->rank ? a->rank : b->rank;
  ndims = ndims > 2 ? ndims : 2;
  if (a->rank < 1 || b->rank < 1)
    return false;
  operand_dims(a, false, ndims, a_dims);
  operand_dims(b, true, ndims, b_dims);
  if (b->rank <= 2 && !is_a_transposed) { /* against one matrix, a batch is one tall matrix */
    int64_t rows = shape_elems(a) / a_dims[ndims - 1];
    a_dims[1] = a_dims[ndims - 1];
    a_dims[0] = rows;
    memmove(b_dims, b_dims + ndims - 2, 2 * sizeof b_dims[0]);
    ndims = 2;
  }
  product.a_layout = matrix_layout(ndims, a_dims, is_a_transposed);
  product.b_layout = matrix_layout(ndims, b_dims, is_b_transposed);
  for (int d = 0; d < ndims - 2; d++)
    out_dims[d] = a_dims[d] > b_dims[d] ? a_dims[d] : b_dims[d];
  out_dims[ndims - 2] = product.a_layout.dims[ndims - 2];
  out_dims[ndims - 1] = product.b_layout.dims[ndims - 1];
  product.out_layout = layout_dense(ndims, out_dims);
  dnnl_primitive_desc_t desc = product_describe(program, &product, cpu_type(program, product.out));
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  product_step(program, &product, step);
  cpu_step_end(program, step, desc);
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

const struct cpu_kernel cpu_gemm = {"Gemm", prepare_gemm};
const struct cpu_kernel cpu_matmul = {"MatMul", prepare_matmul};
const struct cpu_kernel cpu_matmul_grad = {"MatMulGrad", prepare_matmul_grad};

/* Matrix products by cuBLASLt. It thinks in columns: a row-major matrix is the transposed one to it, so it is
   asked for out' = b' a', of which no byte has to move. Descriptors are initialised in place: there is
   nothing to destroy. */
#include "worker/backend/cuda/product/product.h"

enum { WORKSPACE_MAX = 32 << 20, ALIGN_MAX = 256 };

struct cuda_product {
  struct cuda_product_shape shape;
  cublasLtHandle_t blas; /* the program's */
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t first, second, out; /* b', a' and out' */
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
};

struct cuda_matrix cuda_matrix_dense(enum cuda_type type, int64_t rows, int64_t columns, bool is_transposed) {
  return (struct cuda_matrix){.type = type,
                              .rows = rows,
                              .columns = columns,
                              .stack_stride = rows * columns,
                              .row_stride = is_transposed ? 1 : columns,
                              .column_stride = is_transposed ? rows : 1};
}

enum cuda_type cuda_factor_type(const struct backend_program *program) {
  return cuda_view(program)->options.precision == PRECISION_BF16 ? CUDA_BF16 : CUDA_F32;
}

static cudaDataType_t data_type(enum cuda_type type) {
  CHECK(type == CUDA_F32 || type == CUDA_BF16);
  return type == CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A matrix with rows of one element, or columns of one, may be seen either way. */
static bool is_row_major(const struct cuda_matrix *m) {
  return m->column_stride == 1 || m->columns == 1;
}

/* The stride of a single row or column is nobody's, but must be valid. */
static int64_t leading_dimension(const struct cuda_matrix *m) {
  int64_t least = is_row_major(m) ? m->columns : m->rows;
  int64_t stride = is_row_major(m) ? m->row_stride : m->column_stride;
  return stride > least ? stride : least;
}

static cublasStatus_t layout_init(cublasLtMatrixLayoutOpaque_t *layout, const struct cuda_matrix *m,
                                  int64_t stack) {
  int64_t rows = is_row_major(m) ? m->columns : m->rows, columns = is_row_major(m) ? m->rows : m->columns;
  int32_t count = (int32_t)stack;
  int64_t stride = m->stack_stride;
  cublasStatus_t status = cublasLtMatrixLayoutInit(layout, data_type(m->type), (uint64_t)rows,
                                                   (uint64_t)columns, leading_dimension(m));
  if (!status)
    status =
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (!status)
    status = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                              sizeof stride);
  return status;
}

static cublasStatus_t desc_set(struct cuda_product *product, cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t size_bytes) {
  return cublasLtMatmulDescSetAttribute(&product->desc, attribute, value, size_bytes);
}

static cublasStatus_t epilogue_init(struct cuda_product *product) {
  static const cublasLtEpilogue_t epilogues[] = {
      [CUDA_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
      [CUDA_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
      [CUDA_EPILOGUE_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
      [CUDA_EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_BIAS,
      [CUDA_EPILOGUE_BIAS_GELU_KEEP] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
  };
  const struct cuda_product_shape *shape = &product->shape;
  /* Until the bytes are known: an address as aligned as theirs, which the choice of an algorithm looks at. */
  const void *address = (const void *)(uintptr_t)ALIGN_MAX;
  int64_t kept_stride = shape->out.columns;
  cublasStatus_t status =
      desc_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[shape->epilogue], sizeof epilogues[0]);
  if (!status && shape->epilogue != CUDA_EPILOGUE_NONE)
    status = desc_set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, sizeof address);
  if (status || shape->epilogue != CUDA_EPILOGUE_BIAS_GELU_KEEP)
    return status;
  status = desc_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &address, sizeof address);
  return status ? status
                : desc_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &kept_stride, sizeof kept_stride);
}

static cublasStatus_t product_describe(struct cuda_product *product, enum precision precision) {
  const struct cuda_product_shape *shape = &product->shape;
  /* Where bf16 is good enough, f32 factors that stay f32 are rounded to TF32. */
  cublasComputeType_t compute = precision != PRECISION_F32 && shape->a.type == CUDA_F32
                                    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                    : CUBLAS_COMPUTE_32F;
  cublasOperation_t first = is_row_major(&shape->b) ? CUBLAS_OP_N : CUBLAS_OP_T;
  cublasOperation_t second = is_row_major(&shape->a) ? CUBLAS_OP_N : CUBLAS_OP_T;
  cublasStatus_t status = cublasLtMatmulDescInit(&product->desc, compute, CUDA_R_32F);
  if (!status)
    status = desc_set(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  if (!status)
    status = desc_set(product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (!status)
    status = epilogue_init(product);
  if (!status)
    status = layout_init(&product->first, &shape->b, shape->stack);
  if (!status)
    status = layout_init(&product->second, &shape->a, shape->stack);
  return status ? status : layout_init(&product->out, &shape->out, shape->stack);
}

static cublasStatus_t preference_init(cublasLtMatmulPreferenceOpaque_t *preference,
                                      const struct cuda_product_shape *shape, bool is_fast) {
  /* The same bits every time: K is summed in one sequence, or in parts that a later step adds in order. */
  uint32_t reductions = is_fast ? CUBLASLT_REDUCTION_SCHEME_MASK
                                : CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const size_t workspace_bytes = WORKSPACE_MAX;
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    unsigned align_bytes;
  } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape->b.align_bytes},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape->a.align_bytes},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape->out.align_bytes},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape->out.align_bytes}};
  cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
  if (!status)
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes);
  if (!status)
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &reductions, sizeof reductions);
  for (size_t i = 0; i < sizeof alignments / sizeof *alignments && !status; i++) {
    uint32_t align_bytes = alignments[i].align_bytes ? alignments[i].align_bytes : ALIGN_MAX;
    status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i].attribute, &align_bytes,
                                                  sizeof align_bytes);
  }
  return status;
}

/* What cuBLASLt asks of shapes beyond what types say; anything else it is asked itself. */
static bool is_valid(const struct cuda_product_shape *shape) {
  CHECK(shape->a.columns == shape->b.rows && shape->a.rows == shape->out.rows &&
        shape->b.columns == shape->out.columns && shape->a.type == shape->b.type && shape->stack > 0);
  CHECK(is_row_major(&shape->out));
  if (shape->stack > CUDA_STACK_MAX || (shape->out.type == CUDA_BF16 && shape->a.type != CUDA_BF16))
    return false;
  if (shape->epilogue == CUDA_EPILOGUE_BIAS_GELU_KEEP && shape->out.columns % 8 != 0)
    return false;
  return shape->epilogue == CUDA_EPILOGUE_NONE || shape->stack == 1;
}

struct cuda_product *cuda_product_new(struct backend_program *program,
                                      const struct cuda_product_shape *shape) {
  const struct cuda_program_view *view = cuda_view(program);
  struct cuda_product *product = arena_new(view->memory, sizeof *product);
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t found = {0};
  int n_found = 0;
  product->shape = *shape;
  product->blas = view->blas;
  if (!is_valid(shape) || product_describe(product, view->options.precision) ||
      preference_init(&preference, shape, view->options.is_fast))
    return NULL;
  if (cublasLtMatmulAlgoGetHeuristic(view->blas, &product->desc, &product->first, &product->second,
                                     &product->out, &product->out, &preference, 1, &found, &n_found) ||
      n_found < 1 || found.state)
    return NULL;
  product->algorithm = found.algo;
  product->workspace_bytes = found.workspaceSize;
  return product;
}

size_t cuda_product_workspace_bytes(const struct cuda_product *product) {
  return product->workspace_bytes;
}

int cuda_product_enqueue(struct cuda_product *product, const struct node *node,
                         const struct cuda_product_io *io, cudaStream_t stream, struct err *err) {
  const struct cuda_product_shape *shape = &product->shape;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (shape->epilogue != CUDA_EPILOGUE_NONE)
    status = desc_set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &io->bias, sizeof io->bias);
  if (!status && shape->epilogue == CUDA_EPILOGUE_BIAS_GELU_KEEP)
    status = desc_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &io->kept, sizeof io->kept);
  if (!status)
    status = cublasLtMatmul(product->blas, &product->desc, &shape->alpha, io->b, &product->first, io->a,
                            &product->second, &shape->beta, io->out, &product->out, io->out, &product->out,
                            &product->algorithm, io->workspace, product->workspace_bytes, stream);
  return cuda_blas_check(node, status, "multiply matrices", err);
}

/* Matrix products by cuBLASLt: row-major stacks of matrices at addresses that a step chooses. Making a
   product settles its algorithm and workspace, so that enqueuing only launches. */
#ifndef WEIR_WORKER_BACKEND_CUDA_PRODUCT_PRODUCT_H
#define WEIR_WORKER_BACKEND_CUDA_PRODUCT_PRODUCT_H

#include "worker/backend/cuda/engine/cuda.h"

/* How a product sees bytes: element (i, j) of matrix s is at s * stack_stride + i * row_stride + j *
   column_stride elements. One of the last two is 1. type: F32 or BF16. */
struct cuda_matrix {
  enum cuda_type type;
  int64_t rows, columns, stack_stride, row_stride, column_stride;
  unsigned align_bytes; /* that all addresses will be multiples of; 0: 256, as those of arguments are */
};

/* What becomes of alpha * a x b + beta * out. The bias is a vector of out's columns and type. */
enum cuda_epilogue {
  CUDA_EPILOGUE_NONE,
  CUDA_EPILOGUE_BIAS,
  CUDA_EPILOGUE_BIAS_RELU,
  CUDA_EPILOGUE_BIAS_GELU,      /* by the hyperbolic tangent */
  CUDA_EPILOGUE_BIAS_GELU_KEEP, /* besides, what GELU is taken of, into `kept`: out's shape, dense, of its
                                   type */
};

/* a [rows, k], b [k, columns], both of one type; out F32, or BF16 of BF16 factors. Sums are f32. */
struct cuda_product_shape {
  int64_t stack;
  struct cuda_matrix a, b, out;
  float alpha, beta;
  enum cuda_epilogue epilogue;
};

/* cuBLASLt has no products of greater stacks: the stack is a dimension of some of its kernels' grids. */
enum { CUDA_STACK_MAX = 65535 };

struct cuda_product_io {
  const void *a, *b;
  void *out;
  const void *bias;
  void *kept;
  void *workspace;
};

struct cuda_product;

/* A dense stack of matrices; transposed: of [columns, rows] ones. */
struct cuda_matrix cuda_matrix_dense(enum cuda_type type, int64_t rows, int64_t columns, bool is_transposed);

/* The type of factors in the program's precision. */
enum cuda_type cuda_factor_type(const struct backend_program *program);

/* The product is the program's. NULL, without an error, when cuBLASLt has no algorithm for it. */
struct cuda_product *cuda_product_new(struct backend_program *program,
                                      const struct cuda_product_shape *shape);
/* The scratch that each execution needs; 0: none. */
size_t cuda_product_workspace_bytes(const struct cuda_product *product);
int cuda_product_enqueue(struct cuda_product *product, const struct node *node,
                         const struct cuda_product_io *io, cudaStream_t stream, struct err *err);

#endif

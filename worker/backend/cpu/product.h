/* Products of matrices that a step computes in a loop of its own, at addresses that it chooses. */
#ifndef WEIR_WORKER_BACKEND_CPU_PRODUCT_H
#define WEIR_WORKER_BACKEND_CPU_PRODUCT_H

#include "worker/backend/cpu/cpu.h"

/* A stack of matrices: element (i, j) of matrix s is at s * stack_stride + i * row_stride + j *
   column_stride. oneDNN takes none of a stack that steps by 0, even if it is a stack of one. It has fast
   kernels for matrices that follow each other, and for matrices whose rows (of a transposed one, whose
   columns) take turns: row i of all, then row i + 1 of all. */
struct product_view {
  int64_t rows, columns;
  int64_t stack_stride, row_stride, column_stride;
};

/* out = alpha * a x b, or out += with `adds`, for `stack` matrices at once. */
struct cpu_product_shape {
  int64_t stack;
  struct product_view a, b, out;
  float alpha;
  bool adds;
  dnnl_data_type_t factors, result; /* f32 or bf16 */
};

struct cpu_product;

/* The product is the program's. NULL when oneDNN has none, or nothing but its reference loops for bf16. */
struct cpu_product *cpu_product_new(struct backend_program *program, const struct cpu_product_shape *shape);
/* False if oneDNN fails. */
bool cpu_product_run(const struct backend_program *program, const struct cpu_product *product, const void *a,
                     const void *b, void *out);

/* Releases the products of a program. */
void cpu_products_release(struct backend_program *program);

#endif

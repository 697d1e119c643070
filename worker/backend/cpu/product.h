/* Products of matrices that a step computes in a loop of its own, at addresses that it chooses. */
#ifndef WEIR_WORKER_BACKEND_CPU_PRODUCT_H
#define WEIR_WORKER_BACKEND_CPU_PRODUCT_H

#include "worker/backend/cpu/cpu.h"

/* A stack of matrices: element (i, j) of matrix s is at s * stack_stride + i * row_stride + j *
 * column_stride. */
struct product_view {
  int64_t rows, columns;
  int64_t stack_stride, row_stride, column_stride;
};

struct cpu_product;

/* out = alpha * a x b, or out += where adds, for `stack` matrices at once. The product is the program's. NULL
   when oneDNN has none. */
struct cpu_product *cpu_product_new(struct backend_program *program, int64_t stack, struct product_view a,
                                    struct product_view b, struct product_view out, float alpha, bool adds);
/* False if oneDNN fails. */
bool cpu_product_run(const struct backend_program *program, const struct cpu_product *product, const float *a,
                     const float *b, float *out);

/* Releases those of a program. */
void cpu_products_release(struct backend_program *program);

#endif

/* Einstein sums: the terms of an equation, resolved to labels and sizes, and their evaluation as a chain of
   matrix products. */
#ifndef WEIR_MODEL_OPS_SHARED_EINSUM_H
#define WEIR_MODEL_OPS_SHARED_EINSUM_H

#include "model/graph/op.h"
#include "model/ops/shared/matrix.h"

enum {
  EINSUM_ELLIPSIS = 52, /* labels below are letters, A to Z and a to z; these are an ellipsis' dimensions */
  EINSUM_LABELS = EINSUM_ELLIPSIS + RANK_MAX,
  EINSUM_TERMS_MAX = 32,
};

/* The label of each dimension; -1: of size 1 and broadcast, so that it takes no part in the sum. */
struct einsum_term {
  int rank, label[RANK_MAX];
};

/* out = the sum over all labels that it does not have of the product of the terms. A label of `out` may
   repeat, which writes a diagonal among zeros, or be in no term, which repeats the sum along it. */
struct einsum {
  int64_t size[EINSUM_LABELS];
  int n_terms;
  struct einsum_term terms[EINSUM_TERMS_MAX], out;
};

/* out [a.rows, b.cols], out_stride from row to row, = a b, or += with is_added */
typedef void einsum_multiply_fn(struct matrix a, struct matrix b, bool is_added, float *out,
                                int64_t out_stride);

/* From an Einsum's equation or an EinsumGrad's attributes, and the shapes of the inputs. Errors: INVALID,
   UNSUPPORTED. */
int einsum_init(struct einsum *einsum, const struct graph *graph, const struct node *node, struct err *err);

struct shape einsum_out_shape(const struct einsum *einsum);

/* Elements of memory that a run needs beside inputs and output; -1: more than any machine has. */
int64_t einsum_scratch_elems(const struct einsum *einsum);

/* in: dense operands in the order of the terms. */
void einsum_run(const struct einsum *einsum, einsum_multiply_fn *multiply, const struct tensor *in,
                float *out, float *scratch);

#endif

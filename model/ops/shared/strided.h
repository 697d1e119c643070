/* Walks over two tensors at once, each with strides of its own: what ops that only move data are made of. */
#ifndef WEIR_MODEL_OPS_SHARED_STRIDED_H
#define WEIR_MODEL_OPS_SHARED_STRIDED_H

#include "model/graph/graph.h"

enum { STRIDED_RANK_MAX = 2 * RANK_MAX };

/* Dimensions from the outermost to the innermost; strides count elements and may be 0 or negative.
   usage: struct strided walk = {0};
          strided_dim(&walk, rows, 1, cols);
          strided_dim(&walk, cols, rows, 1);
          strided_copy(&walk, sizeof(float), matrix, transposed); */
struct strided {
  int rank;
  int64_t dim[STRIDED_RANK_MAX], from[STRIDED_RANK_MAX], to[STRIDED_RANK_MAX];
};

/* Adds a dimension within those that are there, joined with the last of them where they step evenly. */
void strided_dim(struct strided *walk, int64_t dim, int64_t from, int64_t to);

/* Every element, of 1, 4 or 8 bytes: *to = *from. */
void strided_copy(const struct strided *walk, size_t element, const void *from, void *to);

/* Every element, in the order of the walk: *to += *from. */
void strided_add(const struct strided *walk, const float *from, float *to);

/* The stride of dimension d of a dense tensor: the product of those behind it. */
int64_t shape_stride(const struct shape *shape, int d);

#endif

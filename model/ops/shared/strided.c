/* Walks over two tensors at once, each with strides of its own. */
#include "model/ops/shared/strided.h"

#include <string.h>

void strided_dim(struct strided *walk, int64_t dim, int64_t from, int64_t to) {
  int last = walk->rank - 1;
  if (dim == 1)
    return;
  if (last >= 0 && walk->from[last] == from * dim && walk->to[last] == to * dim) {
    walk->dim[last] *= dim;
  } else {
    CHECK(walk->rank < STRIDED_RANK_MAX);
    last = walk->rank++;
    walk->dim[last] = dim;
  }
  walk->from[last] = from;
  walk->to[last] = to;
}

int64_t shape_stride(const struct shape *shape, int d) {
  int64_t stride = 1;
  for (int i = d + 1; i < shape->rank; i++)
    stride *= shape->dim[i];
  return stride;
}

/* The rows of a walk: all dimensions but the innermost. */
struct rows {
  int64_t count, from, to, at[STRIDED_RANK_MAX]; /* how many; where the present one begins */
  int64_t run, run_from, run_to;                 /* the innermost dimension */
};

static struct rows rows_init(const struct strided *walk) {
  struct rows rows = {.count = 1, .run = 1};
  for (int d = 0; d < walk->rank - 1; d++)
    rows.count *= walk->dim[d];
  if (walk->rank > 0) {
    rows.run = walk->dim[walk->rank - 1];
    rows.run_from = walk->from[walk->rank - 1];
    rows.run_to = walk->to[walk->rank - 1];
  }
  return rows;
}

static void rows_next(struct rows *rows, const struct strided *walk) {
  for (int d = walk->rank - 2; d >= 0; d--) {
    rows->from += walk->from[d];
    rows->to += walk->to[d];
    if (++rows->at[d] < walk->dim[d])
      return;
    rows->from -= walk->from[d] * walk->dim[d];
    rows->to -= walk->to[d] * walk->dim[d];
    rows->at[d] = 0;
  }
}

#define COPY_ROWS(type)                                                                                      \
  for (int64_t r = 0; r < rows.count; r++, rows_next(&rows, walk)) {                                         \
    const type *source = (const type *)from + rows.from;                                                     \
    type *target = (type *)to + rows.to;                                                                     \
    for (int64_t j = 0; j < rows.run; j++)                                                                   \
      target[j * rows.run_to] = source[j * rows.run_from];                                                   \
  }

void strided_copy(const struct strided *walk, size_t element, const void *from, void *to) {
  struct rows rows = rows_init(walk);
  if (rows.run_from == 1 && rows.run_to == 1) {
    for (int64_t r = 0; r < rows.count && rows.run > 0; r++, rows_next(&rows, walk))
      memcpy((char *)to + rows.to * (int64_t)element, (const char *)from + rows.from * (int64_t)element,
             (size_t)rows.run * element);
    return;
  }
  switch (element) {
  case 1:
    COPY_ROWS(uint8_t)
    return;
  case 4:
    COPY_ROWS(uint32_t)
    return;
  default:
    CHECK(element == 8);
    COPY_ROWS(uint64_t)
  }
}

void strided_add(const struct strided *walk, const float *from, float *to) {
  struct rows rows = rows_init(walk);
  for (int64_t r = 0; r < rows.count; r++, rows_next(&rows, walk)) {
    const float *source = from + rows.from;
    float *target = to + rows.to;
    for (int64_t j = 0; j < rows.run; j++)
      target[j * rows.run_to] += source[j * rows.run_from];
  }
}

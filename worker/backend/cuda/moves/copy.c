/* Walks of strides, for the copy kernels. */
#include "worker/backend/cuda/moves/copy.h"

#include <stdbool.h>

int64_t cuda_stride(const struct cuda_tensor *tensor, int d) {
  bool is_channels_last = tensor->layout == CUDA_CHANNELS_LAST;
  int64_t stride = is_channels_last ? tensor->dim[1] : 1;
  if (is_channels_last && d == 1)
    return 1;
  if (tensor->layout == CUDA_TURNED && d >= tensor->rank - 2)
    return d == tensor->rank - 1 ? tensor->dim[d - 1] : 1;
  for (int k = d + 1; k < tensor->rank; k++)
    if (!is_channels_last || k != 1)
      stride *= tensor->dim[k];
  return stride;
}

int cuda_element(enum cuda_type type) {
  switch (type) {
  case CUDA_BF16:
    return 2;
  case CUDA_F64:
  case CUDA_I64:
    return 8;
  case CUDA_U8:
    return 1;
  default:
    return 4;
  }
}

void cuda_copy_dim(struct cuda_copy *copy, int64_t dim, int64_t from, int64_t to) {
  if (dim == 1)
    return;
  copy->dim[copy->rank] = dim;
  copy->from[copy->rank] = from;
  copy->to[copy->rank++] = to;
}

static void elems_swap(int64_t *a, int64_t *b) {
  int64_t held = *a;
  *a = *b;
  *b = held;
}

/* Outermost first in `to`: what is written is written in order. */
static void sort_dims(struct cuda_copy *copy) {
  for (int d = 1; d < copy->rank; d++)
    for (int k = d; k > 0 && copy->to[k - 1] < copy->to[k]; k--) {
      elems_swap(&copy->dim[k - 1], &copy->dim[k]);
      elems_swap(&copy->from[k - 1], &copy->from[k]);
      elems_swap(&copy->to[k - 1], &copy->to[k]);
    }
}

static void join_dims(struct cuda_copy *copy) {
  int rank = 0;
  for (int d = 0; d < copy->rank; d++) {
    int64_t dim = copy->dim[d];
    if (rank > 0 && copy->from[rank - 1] == copy->from[d] * dim && copy->to[rank - 1] == copy->to[d] * dim)
      copy->dim[rank - 1] *= dim;
    else
      copy->dim[rank++] = dim;
    copy->from[rank - 1] = copy->from[d];
    copy->to[rank - 1] = copy->to[d];
  }
  copy->rank = rank;
}

static bool is_even(const struct cuda_copy *copy, int64_t factor) {
  if (copy->dim[copy->rank - 1] % factor != 0 || copy->from_begin % factor != 0 ||
      copy->to_begin % factor != 0)
    return false;
  for (int d = 0; d < copy->rank - 1; d++)
    if (copy->from[d] % factor != 0 || copy->to[d] % factor != 0)
      return false;
  return true;
}

/* Runs that both have side by side are moved in pieces of up to 16 bytes. */
static void copy_widen(struct cuda_copy *copy) {
  int last = copy->rank - 1;
  if (last < 0 || copy->from[last] != 1 || copy->to[last] != 1)
    return;
  while (2 * copy->element <= COPY_ELEMENT_MAX && is_even(copy, 2)) {
    copy->element *= 2;
    copy->dim[last] /= 2;
    copy->from_begin /= 2;
    copy->to_begin /= 2;
    for (int d = 0; d < last; d++) {
      copy->from[d] /= 2;
      copy->to[d] /= 2;
    }
  }
}

void cuda_copy_settle(struct cuda_copy *copy) {
  enum { TURNED_MIN = 8 }; /* shorter runs gain nothing from a way through shared memory */
  int last;
  sort_dims(copy);
  join_dims(copy);
  copy_widen(copy);
  last = copy->rank - 1;
  copy->elems = 1;
  copy->turned = -1;
  for (int d = 0; d < copy->rank; d++) {
    copy->elems *= copy->dim[d];
    copy->divisor[d] = cuda_divisor_of(copy->dim[d]);
    if (d < last && copy->from[d] == 1 && copy->dim[d] >= TURNED_MIN && copy->dim[last] >= TURNED_MIN &&
        copy->to[last] == 1)
      copy->turned = d;
  }
}

/* Tensors as rows: which dimensions are walked along, and by how many threads. */
#include "worker/backend/cuda/rows/rows.h"

bool cuda_rows_init(struct cuda_rows *rows, int64_t r0, int64_t k0, int64_t r1, int64_t k1) {
  if (r1 == 1) {
    r1 = r0;
    k1 *= k0;
    r0 = k0 = 1;
  }
  *rows = (struct cuda_rows){r0, k0, r1, k1, k0 * k1, r0 * r1, {0}, {0}, {0}};
  if (rows->rows < 1 || rows->n < 1 || rows->n > INT32_MAX / rows->rows)
    return false;
  rows->by_r1 = cuda_divisor_of(r1);
  rows->by_k0 = cuda_divisor_of(k0);
  rows->by_k1 = cuda_divisor_of(k1);
  return true;
}

bool cuda_rows_of_reduction(struct cuda_rows *rows, const struct shape *from, const struct shape *to) {
  int64_t sizes[4] = {1, 1, 1, 1}; /* k1, r1, k0, r0 */
  int place = 0;
  for (int d = from->rank - 1, own = to->rank - 1; d >= 0; d--, own--) {
    bool is_reduced = own < 0 || to->dim[own] == 1;
    if (from->dim[d] == 1)
      continue;
    place += place % 2 != is_reduced;
    if (place == 4)
      return false;
    sizes[place] *= from->dim[d];
  }
  return cuda_rows_init(rows, sizes[3], sizes[2], sizes[1], sizes[0]);
}

static int64_t plane_of(const struct shape *x) {
  int64_t plane = 1;
  for (int d = 2; d < x->rank; d++)
    plane *= x->dim[d];
  return plane;
}

bool cuda_rows_of_channels(struct cuda_rows *rows, const struct shape *x, enum cuda_layout layout) {
  int64_t plane = plane_of(x);
  return layout == CUDA_CHANNELS_LAST ? cuda_rows_init(rows, 1, 1, x->dim[0] * plane, x->dim[1])
                                      : cuda_rows_init(rows, x->dim[0], x->dim[1], plane, 1);
}

bool cuda_rows_of_planes(struct cuda_rows *rows, const struct shape *x, enum cuda_layout layout) {
  int64_t plane = plane_of(x);
  return layout == CUDA_CHANNELS_LAST ? cuda_rows_init(rows, 1, x->dim[0], plane, x->dim[1])
                                      : cuda_rows_init(rows, 1, x->dim[0] * x->dim[1], plane, 1);
}

/* Rows of a few elements are a thread's whatever their order: all of a warp's lie in a few cache lines. */
enum { FEW_ELEMS = 8, WARP_ELEMS = 1024, SIDE_BY_SIDE = 16 };

int cuda_rows_lanes(const struct cuda_rows *rows) {
  if (rows->n <= FEW_ELEMS || rows->k1 >= SIDE_BY_SIDE)
    return 1;
  return rows->n <= WARP_ELEMS ? ROWS_WARP : ROWS_BLOCK;
}

int cuda_rows_scratch(struct backend_program *program, struct cuda_step *step, int64_t elems) {
  int arg = cuda_scratch(program, step, (size_t)elems * sizeof(float));
  struct cuda_tensor *tensor = &step->args[arg].tensor;
  tensor->type = CUDA_F32;
  tensor->rank = 1;
  tensor->dim[0] = tensor->elems = elems;
  return arg;
}

struct cuda_tensor cuda_arg_tensor(const struct cuda_step *step, int arg) {
  const struct cuda_tensor absent = {0};
  return arg < 0 ? absent : step->args[arg].tensor;
}

int cuda_write_optional(struct backend_program *program, struct cuda_step *step, int output,
                        enum cuda_type type, enum cuda_layout layout) {
  if (output >= step->node->n_outputs || step->node->outputs[output] < 0)
    return -1;
  return cuda_write(program, step, step->node->outputs[output], type, layout);
}

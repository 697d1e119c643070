/* TopK as a step: few reals are selected one by one, more and integers are sorted. */
#include "worker/backend/cuda/rows/top_k.h"

#include "model/ops/shared/infer.h"
#include "worker/backend/cuda/engine/sort.h"

/* Each reads its row once more; sorting passes over it some fifteen times, reading and writing. */
enum { SELECTED_MAX = 64 };

struct top_k_step {
  struct cuda_top_k top_k;
  int x, y, indices, sorting; /* arguments; -1: none */
};

static int enqueue_top_k(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err) {
  const struct top_k_step *own = step->details;
  struct cuda_top_k top_k = own->top_k;
  (void)program;
  top_k.x = cuda_arg_tensor(step, own->x);
  top_k.y = cuda_arg_tensor(step, own->y);
  top_k.indices = cuda_arg_tensor(step, own->indices).data;
  if (own->sorting >= 0) {
    struct cuda_sorting sorting = cuda_sorting_of(step, own->sorting);
    cuda_top_k_sort_launch(&top_k, &sorting, stream);
  } else {
    cuda_top_k_launch(&top_k, stream);
  }
  return cuda_check(step->node, cudaGetLastError(), "select the first elements", err);
}

/* X -> values, indices; how many follows from the outputs' shape. */
static bool prepare_top_k(struct backend_program *program, const struct node *node) {
  const struct value *x = node_input(cuda_view(program)->graph, node, 0);
  const struct value *y = node_output(cuda_view(program)->graph, node, 0);
  struct top_k_step own = {.top_k = {.is_least = node_attr_int(node, "largest", 1) == 0}, .sorting = -1};
  int64_t outer = 1, inner = 1;
  struct cuda_step *step;
  struct err err = ERR_NONE;
  int axis;
  if (!y || infer_axis(node, node_attr_int(node, "axis", -1), x->shape.rank, &axis, &err))
    return false;
  for (int d = 0; d < x->shape.rank; d++)
    if (d != axis)
      *(d < axis ? &outer : &inner) *= x->shape.dim[d];
  own.top_k.k = y->shape.dim[axis];
  if (!cuda_rows_init(&own.top_k.rows, 1, outer, x->shape.dim[axis], inner))
    return false;
  own.top_k.lanes = cuda_rows_lanes(&own.top_k.rows);
  step = cuda_step_new(program, node);
  own.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.y = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.indices = cuda_write_optional(program, step, 1, CUDA_I64, CUDA_DENSE);
  if (own.top_k.k > SELECTED_MAX || x->dtype != DTYPE_F32)
    own.sorting = cuda_sorting_add(program, step, shape_elems(&x->shape));
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_top_k;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_top_k = {.op = "TopK", .prepare = prepare_top_k};

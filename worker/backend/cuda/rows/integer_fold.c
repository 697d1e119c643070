/* Reductions of integers as steps. */
#include "worker/backend/cuda/rows/integer_fold.h"

static int enqueue_fold(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  struct cuda_integer_fold fold = *(const struct cuda_integer_fold *)step->details;
  (void)program;
  fold.x = step->args[0].tensor;
  fold.out = step->args[1].tensor;
  cuda_integer_fold_launch(&fold, stream);
  return cuda_check(step->node, cudaGetLastError(), "reduce integers", err);
}

bool cuda_integer_fold_prepare(struct backend_program *program, const struct node *node,
                               struct cuda_integer_fold fold) {
  struct cuda_step *step = cuda_step_new(program, node);
  fold.lanes = cuda_rows_lanes(&fold.rows);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  step->details = arena_copy(cuda_view(program)->memory, &fold, sizeof fold);
  step->enqueue = enqueue_fold;
  cuda_step_end(program, step);
  return true;
}

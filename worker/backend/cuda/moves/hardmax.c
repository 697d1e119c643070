/* Hardmax: where the greatest of each row is, as one-hot rows. */
#include "model/ops/softmax.h"
#include "worker/backend/cuda/moves/arrange.h"
#include "worker/backend/cuda/rows/fold.h"

struct hardmax {
  struct cuda_folding folding;
  struct cuda_one_hot one_hot;
};

/* Arguments: x, the greatest's places, y. */
static int enqueue_hardmax(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  const struct hardmax *own = step->details;
  struct cuda_one_hot one_hot = own->one_hot;
  (void)program;
  if (cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  one_hot.indices = step->args[own->folding.out[0]].tensor;
  one_hot.indices.type = CUDA_I64;
  one_hot.y = step->args[2].tensor;
  cuda_one_hot_launch(&one_hot, stream);
  return cuda_check(step->node, cudaGetLastError(), "start one-hot rows", err);
}

static bool prepare_hardmax(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct hardmax own = {.folding = cuda_folding_of(FOLD_ARG_MAX, FINISH_INDEX)};
  struct softmax_rows rows;
  struct err err = ERR_NONE;
  struct cuda_step *step;
  if (softmax_rows_init(&rows, graph, node, &node_input(graph, node, 0)->shape, &err) ||
      !cuda_rows_init(&own.folding.fold.rows, 1, rows.outer, rows.n, rows.inner))
    return false;
  step = cuda_step_new(program, node);
  own.folding.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.folding.out[0] = cuda_scratch(program, step, (size_t)(rows.outer * rows.inner) * sizeof(int64_t));
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_folding_plan(program, step, &own.folding);
  own.one_hot.depth = cuda_divisor_of(rows.n);
  own.one_hot.inner = cuda_divisor_of(rows.inner);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_hardmax;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_hardmax = {.op = "Hardmax", .prepare = prepare_hardmax};

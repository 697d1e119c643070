/* MeanVarianceNormalization and its gradient: folds for the moments, and for the sums with dy, and a spread.
 */
#include "model/ops/shared/infer.h"
#include "worker/backend/cuda/rows/fold.h"
#include "worker/backend/cuda/rows/spread.h"

/* As the reference kernel adds to the standard deviation. */
static const double deviation_epsilon = 1e-9;

struct mvn_step {
  struct cuda_folding moments, sums;
  struct cuda_spreading spreading;
  bool is_grad;
};

static int enqueue_mvn(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                       struct err *err) {
  const struct mvn_step *own = step->details;
  (void)program;
  if (cuda_folding_enqueue(&own->moments, step, stream, err) ||
      (own->is_grad && cuda_folding_enqueue(&own->sums, step, stream, err)))
    return err->code;
  return cuda_spreading_enqueue(&own->spreading, step, stream, err);
}

/* The elements that are normalised together; by default all but the channels of [n,c,h,w]. */
static bool rows_init(struct cuda_rows *rows, const struct node *node, const struct shape *x) {
  static const int64_t usual[] = {0, 2, 3};
  const struct attr *attr = node_attr(node, "axes");
  struct shape kept = *x;
  struct err err = ERR_NONE;
  int n = attr ? attr->n : 3, axis;
  for (int i = 0; i < n; i++) {
    if (infer_axis(node, attr ? attr->ints[i] : usual[i], x->rank, &axis, &err))
      return false;
    kept.dim[axis] = 1;
  }
  return cuda_rows_of_reduction(rows, x, &kept);
}

/* X -> Y; dY, X -> dX */
static bool prepare_mvn(struct backend_program *program, const struct node *node) {
  struct mvn_step own = {.moments = cuda_folding_of(FOLD_MOMENTS, FINISH_MOMENTS),
                         .sums = cuda_folding_of(FOLD_GRADIENTS, FINISH_BOTH),
                         .is_grad = node->n_inputs > 1};
  struct cuda_spreading *spreading = &own.spreading;
  struct cuda_rows rows;
  struct cuda_step *step;
  if (!rows_init(&rows, node, &node_input(cuda_view(program)->graph, node, 0)->shape))
    return false;
  step = cuda_step_new(program, node);
  *spreading = cuda_spreading_of(own.is_grad ? SPREAD_DEVIATION_GRAD : SPREAD_DEVIATION);
  spreading->spread.epsilon = deviation_epsilon;
  spreading->spread.rows = own.moments.fold.rows = own.sums.fold.rows = rows;
  if (own.is_grad)
    spreading->dy = own.sums.other = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->x = own.moments.x = own.sums.x =
      cuda_read(program, step, node->inputs[own.is_grad], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->row[0] = own.moments.out[0] = own.sums.mean = cuda_rows_scratch(program, step, rows.rows);
  spreading->row[1] = own.moments.out[1] = cuda_rows_scratch(program, step, rows.rows);
  cuda_folding_plan(program, step, &own.moments);
  if (own.is_grad) {
    spreading->row[2] = own.sums.out[0] = cuda_rows_scratch(program, step, rows.rows);
    spreading->row[3] = own.sums.out[1] = cuda_rows_scratch(program, step, rows.rows);
    cuda_folding_plan(program, step, &own.sums);
  }
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_mvn;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_mean_variance_normalization = {.op = "MeanVarianceNormalization",
                                                                    .prepare = prepare_mvn};
const struct cuda_kernel cuda_kernel_mean_variance_normalization_grad = {
    .op = "MeanVarianceNormalizationGrad", .prepare = prepare_mvn};

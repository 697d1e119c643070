/* Reductions along axes, and their gradients. */
#include "model/ops/shared/reduce.h"

#include "model/ops/shared/lp.h"
#include "worker/backend/cuda/rows/fold.h"
#include "worker/backend/cuda/rows/integer_fold.h"
#include "worker/backend/cuda/rows/spread.h"

/* A fold for each output; then, for gradients, a spread. */
struct reduction {
  struct cuda_folding folding;
  struct cuda_spreading spreading;
  bool has_folding, has_spreading;
};

static int enqueue_reduction(struct backend_program *program, const struct cuda_step *step,
                             cudaStream_t stream, struct err *err) {
  const struct reduction *own = step->details;
  (void)program;
  if (own->has_folding && cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  return own->has_spreading ? cuda_spreading_enqueue(&own->spreading, step, stream, err) : ERR_OK;
}

static void end_step(struct backend_program *program, struct cuda_step *step,
                     const struct reduction *reduction) {
  step->details = arena_copy(cuda_view(program)->memory, reduction, sizeof *reduction);
  step->enqueue = enqueue_reduction;
  cuda_step_end(program, step);
}

static bool is_f32(const struct backend_program *program, int value) {
  return cuda_view(program)->graph->values[value].dtype == DTYPE_F32;
}

/* X -> Y; the fold's rows are set. */
static bool prepare_fold(struct backend_program *program, const struct node *node,
                         const struct cuda_folding *folding, enum cuda_layout layout) {
  struct reduction reduction = {.folding = *folding, .has_folding = true};
  enum cuda_type type = folding->fold.finish == FINISH_INDEX ? CUDA_I64 : CUDA_ANY_TYPE;
  struct cuda_step *step = cuda_step_new(program, node);
  reduction.folding.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  reduction.folding.out[0] = cuda_write(program, step, node->outputs[0], type, CUDA_DENSE);
  cuda_folding_plan(program, step, &reduction.folding);
  end_step(program, step, &reduction);
  return true;
}

/* The same of integers, whose results are divided. */
static bool prepare_integers(struct backend_program *program, const struct node *node,
                             const struct cuda_fold *fold, int64_t divisor) {
  return cuda_integer_fold_prepare(
      program, node,
      (struct cuda_integer_fold){
          .kind = fold->kind, .rows = fold->rows, .divisor = divisor, .is_last = fold->is_last});
}

/* Along the axes that ONNX's attributes or inputs name. */
static bool prepare_along(struct backend_program *program, const struct node *node, enum cuda_fold_kind kind,
                          enum cuda_fold_finish finish) {
  struct cuda_folding folding = cuda_folding_of(kind, finish);
  const struct graph *graph = cuda_view(program)->graph;
  struct err err = ERR_NONE;
  struct shape kept;
  if (reduce_kept_shape(graph, node, &kept, &err) ||
      !cuda_rows_of_reduction(&folding.fold.rows, &node_input(graph, node, 0)->shape, &kept))
    return false;
  return is_f32(program, node->inputs[0]) ? prepare_fold(program, node, &folding, CUDA_DENSE)
                                          : prepare_integers(program, node, &folding.fold, 1);
}

static bool prepare_sum(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_SUM, FINISH_A);
}

static bool prepare_l1(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_ABS, FINISH_A);
}

static bool prepare_l2(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_SQUARES, FINISH_SQRT);
}

static bool prepare_sum_square(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_SQUARES, FINISH_A);
}

static bool prepare_log_sum(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_SUM, FINISH_LOG);
}

static bool prepare_log_sum_exp(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_EXP, FINISH_LOG_EXP);
}

static bool prepare_prod(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_PRODUCT, FINISH_A);
}

static bool prepare_max(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_MAX, FINISH_A);
}

static bool prepare_min(struct backend_program *program, const struct node *node) {
  return prepare_along(program, node, FOLD_MIN, FINISH_A);
}

static bool prepare_sum_to(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_folding folding = cuda_folding_of(FOLD_SUM, FINISH_A);
  return cuda_rows_of_reduction(&folding.fold.rows, &node_input(graph, node, 0)->shape,
                                &node_output(graph, node, 0)->shape) &&
         prepare_fold(program, node, &folding, CUDA_DENSE);
}

/* Over all spatial dimensions, in the layout that x has. */
static bool prepare_planes(struct backend_program *program, const struct node *node,
                           struct cuda_folding *folding, bool is_mean) {
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[0]);
  if (!cuda_rows_of_planes(&folding->fold.rows, &node_input(cuda_view(program)->graph, node, 0)->shape,
                           layout))
    return false;
  if (is_mean)
    folding->fold.scale = 1.0 / (double)folding->fold.rows.n;
  return prepare_fold(program, node, folding, layout);
}

static bool prepare_mean(struct backend_program *program, const struct node *node) {
  struct cuda_folding folding = cuda_folding_of(FOLD_SUM, FINISH_A);
  const struct graph *graph = cuda_view(program)->graph;
  const struct shape *x = &node_input(graph, node, 0)->shape;
  struct err err = ERR_NONE;
  struct shape kept;
  if (reduce_kept_shape(graph, node, &kept, &err))
    return false;
  if (is_f32(program, node->inputs[0]) && reduce_is_pool(x, &kept))
    return prepare_planes(program, node, &folding, true);
  if (!cuda_rows_of_reduction(&folding.fold.rows, x, &kept))
    return false;
  if (!is_f32(program, node->inputs[0]))
    return prepare_integers(program, node, &folding.fold, folding.fold.rows.n);
  folding.fold.scale = 1.0 / (double)folding.fold.rows.n;
  return prepare_fold(program, node, &folding, CUDA_DENSE);
}

static bool prepare_global_average(struct backend_program *program, const struct node *node) {
  struct cuda_folding folding = cuda_folding_of(FOLD_SUM, FINISH_A);
  return prepare_planes(program, node, &folding, true);
}

static bool prepare_global_max(struct backend_program *program, const struct node *node) {
  struct cuda_folding folding = cuda_folding_of(FOLD_MAX, FINISH_A);
  return prepare_planes(program, node, &folding, false);
}

static bool prepare_global_lp(struct backend_program *program, const struct node *node) {
  struct cuda_folding folding = cuda_folding_of(FOLD_POWERS, FINISH_ROOT);
  struct err err = ERR_NONE;
  if (lp_order(node, &folding.fold.power, &err))
    return false;
  if (folding.fold.power == 1.0)
    folding = cuda_folding_of(FOLD_ABS, FINISH_A);
  else if (folding.fold.power == 2.0)
    folding = cuda_folding_of(FOLD_SQUARES, FINISH_SQRT);
  return prepare_planes(program, node, &folding, false);
}

static bool prepare_arg(struct backend_program *program, const struct node *node, enum cuda_fold_kind kind) {
  struct cuda_folding folding = cuda_folding_of(kind, FINISH_INDEX);
  struct shape x = node_input(cuda_view(program)->graph, node, 0)->shape, kept = x;
  struct err err = ERR_NONE;
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", 0), x.rank, &axis, &err))
    return false;
  kept.dim[axis] = 1;
  folding.fold.is_last = node_attr_int(node, "select_last_index", 0) != 0;
  if (!cuda_rows_of_reduction(&folding.fold.rows, &x, &kept))
    return false;
  return is_f32(program, node->inputs[0]) ? prepare_fold(program, node, &folding, CUDA_DENSE)
                                          : prepare_integers(program, node, &folding.fold, 1);
}

static bool prepare_arg_max(struct backend_program *program, const struct node *node) {
  return prepare_arg(program, node, FOLD_ARG_MAX);
}

static bool prepare_arg_min(struct backend_program *program, const struct node *node) {
  return prepare_arg(program, node, FOLD_ARG_MIN);
}

/* GlobalAveragePoolGrad: dY -> dX, in the layout that the forward node's x has. */
static bool prepare_global_average_grad(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct reduction reduction = {.spreading = cuda_spreading_of(SPREAD_REPEAT), .has_spreading = true};
  struct cuda_spreading *spreading = &reduction.spreading;
  enum cuda_layout layout =
      node->forward < 0 ? CUDA_DENSE : cuda_layout_of(program, graph->nodes[node->forward]->inputs[0]);
  struct cuda_step *step;
  if (!cuda_rows_of_planes(&spreading->spread.rows, &node_output(graph, node, 0)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  spreading->spread.scale = 1.0 / (double)spreading->spread.rows.n;
  spreading->row[0] = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  end_step(program, step, &reduction);
  return true;
}

/* dY, X and, with a third input, Y -> dX; the spread's kind and parameters, and of the fold before it, are
   set. */
static bool prepare_grad(struct backend_program *program, const struct node *node,
                         struct reduction *reduction) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_folding *folding = &reduction->folding;
  struct cuda_spreading *spreading = &reduction->spreading;
  struct cuda_rows rows;
  struct cuda_step *step;
  if (!cuda_rows_of_reduction(&rows, &node_input(graph, node, 1)->shape, &node_input(graph, node, 0)->shape))
    return false;
  step = cuda_step_new(program, node);
  reduction->has_spreading = true;
  spreading->spread.rows = folding->fold.rows = rows;
  spreading->row[0] = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->x = folding->x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  if (node->n_inputs > 2)
    spreading->row[1] = folding->other = cuda_read(program, step, node->inputs[2], CUDA_ANY_TYPE, CUDA_DENSE);
  spreading->out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  if (reduction->has_folding) {
    spreading->row[2] = folding->out[0] = cuda_rows_scratch(program, step, rows.rows);
    if (folding->fold.kind == FOLD_FACTORS)
      spreading->row[1] = folding->out[1] = cuda_rows_scratch(program, step, rows.rows);
    cuda_folding_plan(program, step, folding);
  }
  end_step(program, step, reduction);
  return true;
}

static bool prepare_extreme_grad(struct backend_program *program, const struct node *node) {
  struct reduction reduction = {.folding = cuda_folding_of(FOLD_EQUALS, FINISH_A),
                                .spreading = cuda_spreading_of(SPREAD_EXTREME),
                                .has_folding = true};
  return prepare_grad(program, node, &reduction);
}

static bool prepare_prod_grad(struct backend_program *program, const struct node *node) {
  struct reduction reduction = {.folding = cuda_folding_of(FOLD_FACTORS, FINISH_BOTH),
                                .spreading = cuda_spreading_of(SPREAD_PRODUCT),
                                .has_folding = true};
  return prepare_grad(program, node, &reduction);
}

static bool prepare_norm_grad(struct backend_program *program, const struct node *node) {
  struct reduction reduction = {.spreading = cuda_spreading_of(SPREAD_LP)};
  struct err err = ERR_NONE;
  return !lp_order(node, &reduction.spreading.spread.power, &err) && prepare_grad(program, node, &reduction);
}

const struct cuda_kernel cuda_kernel_arg_max = {.op = "ArgMax", .prepare = prepare_arg_max};
const struct cuda_kernel cuda_kernel_arg_min = {.op = "ArgMin", .prepare = prepare_arg_min};
const struct cuda_kernel cuda_kernel_global_average_pool = {.op = "GlobalAveragePool",
                                                            .prepare = prepare_global_average};
const struct cuda_kernel cuda_kernel_global_average_pool_grad = {.op = "GlobalAveragePoolGrad",
                                                                 .prepare = prepare_global_average_grad};
const struct cuda_kernel cuda_kernel_global_lp_pool = {.op = "GlobalLpPool", .prepare = prepare_global_lp};
const struct cuda_kernel cuda_kernel_global_max_pool = {.op = "GlobalMaxPool", .prepare = prepare_global_max};
const struct cuda_kernel cuda_kernel_reduce_extreme_grad = {.op = "ReduceExtremeGrad",
                                                            .prepare = prepare_extreme_grad};
const struct cuda_kernel cuda_kernel_reduce_l1 = {.op = "ReduceL1", .prepare = prepare_l1, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_l2 = {.op = "ReduceL2", .prepare = prepare_l2, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_log_sum = {
    .op = "ReduceLogSum", .prepare = prepare_log_sum, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_log_sum_exp = {
    .op = "ReduceLogSumExp", .prepare = prepare_log_sum_exp, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_max = {.op = "ReduceMax", .prepare = prepare_max, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_mean = {
    .op = "ReduceMean", .prepare = prepare_mean, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_min = {.op = "ReduceMin", .prepare = prepare_min, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_norm_grad = {.op = "ReduceNormGrad",
                                                         .prepare = prepare_norm_grad};
const struct cuda_kernel cuda_kernel_reduce_prod = {
    .op = "ReduceProd", .prepare = prepare_prod, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_prod_grad = {.op = "ReduceProdGrad",
                                                         .prepare = prepare_prod_grad};
const struct cuda_kernel cuda_kernel_reduce_sum = {.op = "ReduceSum", .prepare = prepare_sum, .settings = 1};
const struct cuda_kernel cuda_kernel_reduce_sum_square = {
    .op = "ReduceSumSquare", .prepare = prepare_sum_square, .settings = 1};
const struct cuda_kernel cuda_kernel_sum_to = {.op = "SumTo", .prepare = prepare_sum_to};

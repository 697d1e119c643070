/* Normalisation of rows by their own moments: layer, instance, group and RMS norm. A row is read once; the
   gradients of scale and bias are a fold over the elements of each channel. */
#include "model/ops/row_norm.h"

#include "model/ops/shared/infer.h"
#include "worker/backend/cuda/rows/fold.h"
#include "worker/backend/cuda/rows/row_norm_wide.h"

/* Rows of n elements each, and where scale and bias have theirs. */
static bool rows_init(struct cuda_row_step *own, const struct row_norm *norm) {
  int64_t run, channels;
  if (!row_norm_channels(norm, &run, &channels) ||
      !cuda_rows_init(&own->row_wise.rows, 1, norm->rows, norm->n, 1))
    return false;
  cuda_row_step_channels(own, run, channels);
  return true;
}

static int read_vector(struct backend_program *program, struct cuda_step *step, int input) {
  return cuda_read(program, step, step->node->inputs[input], CUDA_F32, CUDA_DENSE);
}

/* X, scale, bias -> Y, mean, inv_std */
static bool prepare_norm(struct backend_program *program, const struct node *node,
                         const struct row_norm *norm) {
  struct cuda_row_step own = cuda_row_step_of(ROW_NORM);
  struct cuda_step *step;
  if (!rows_init(&own, norm))
    return false;
  step = cuda_step_new(program, node);
  own.row_wise.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  own.a = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.scale = read_vector(program, step, 1);
  if (norm->has_bias)
    own.bias = read_vector(program, step, 2);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.mean = cuda_write_optional(program, step, 1, CUDA_F32, CUDA_DENSE);
  own.inv_std = cuda_write_optional(program, step, 2, CUDA_F32, CUDA_DENSE);
  cuda_row_step_end(program, step, &own);
  return true;
}

static bool prepare_layer(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_layer(&norm, cuda_view(program)->graph, node, &err) &&
         prepare_norm(program, node, &norm);
}

static bool prepare_instance(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_instance(&norm, cuda_view(program)->graph, node, &err) &&
         prepare_norm(program, node, &norm);
}

static bool prepare_group(struct backend_program *program, const struct node *node) {
  struct row_norm norm;
  struct err err = ERR_NONE;
  return !row_norm_of_group(&norm, cuda_view(program)->graph, node, &err) &&
         prepare_norm(program, node, &norm);
}

/* dscale and dbias, and dx. */
struct grad_step {
  struct cuda_folding folding;
  struct cuda_row_step rows;
};

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct grad_step *own = step->details;
  (void)program;
  if (cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  return cuda_row_step_enqueue(&own->rows, step, stream, err);
}

/* The same by one kernel, which reads x and dY once. */
static int enqueue_wide_grad(struct backend_program *program, const struct cuda_step *step,
                             cudaStream_t stream, struct err *err) {
  const struct grad_step *own = step->details;
  struct cuda_row_wise rows = cuda_row_step_operands(&own->rows, step);
  struct cuda_fold fold = cuda_folding_operands(&own->folding, step);
  (void)program;
  cuda_row_norm_wide_grad_launch(&rows, fold.partials, stream);
  cuda_fold_parts_launch(&fold, stream);
  return cuda_check(step->node, cudaGetLastError(), "differentiate a norm of rows", err);
}

/* The elements of each channel, as rows; mean and inv_std are those of the rows that are normalised. */
static bool folding_init(struct cuda_folding *folding, const struct row_norm *norm) {
  int64_t run, channels;
  *folding = cuda_folding_of(FOLD_GRADIENTS, FINISH_BOTH);
  folding->fold.stat_elems = norm->n;
  return row_norm_channels(norm, &run, &channels) &&
         cuda_rows_init(&folding->fold.rows, norm->rows * norm->n / (channels * run), channels, run, 1);
}

/* RowNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dbias */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct grad_step own = {.rows = cuda_row_step_of(ROW_NORM_GRAD)};
  struct cuda_step *step;
  struct row_norm norm;
  struct err err = ERR_NONE;
  if (row_norm_of_grad(&norm, cuda_view(program)->graph, node, &err) || !rows_init(&own.rows, &norm) ||
      !folding_init(&own.folding, &norm))
    return false;
  step = cuda_step_new(program, node);
  own.rows.a = own.folding.other = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.rows.b = own.folding.x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  own.rows.scale = read_vector(program, step, 2);
  own.rows.mean = own.folding.mean = read_vector(program, step, 3);
  own.rows.inv_std = own.folding.inv_std = read_vector(program, step, 4);
  own.rows.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.folding.out[0] = cuda_write_optional(program, step, 1, CUDA_F32, CUDA_DENSE);
  own.folding.out[1] = cuda_write_optional(program, step, 2, CUDA_F32, CUDA_DENSE);
  struct cuda_row_wise rows = cuda_row_step_operands(&own.rows, step);
  bool is_wide = cuda_row_norm_is_wide(&rows);
  if (is_wide)
    cuda_folding_parts(program, step, &own.folding, cuda_row_norm_wide_parts(&rows));
  else
    cuda_folding_plan(program, step, &own.folding);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = is_wide ? enqueue_wide_grad : enqueue_grad;
  cuda_step_end(program, step);
  return true;
}

/* Of RMSNormalization, whose x is that input, and its gradient: the row is all from `axis` on. */
static bool rms_init(struct cuda_row_step *own, const struct backend_program *program,
                     const struct node *node, int input) {
  const struct shape *x = &node_input(cuda_view(program)->graph, node, input)->shape;
  struct row_norm norm = {.rows = 1, .n = 1, .x = *x};
  struct err err = ERR_NONE;
  int axis;
  if (infer_axis(node, node_attr_int(node, "axis", -1), x->rank, &axis, &err))
    return false;
  for (int d = 0; d < x->rank; d++)
    *(d < axis ? &norm.rows : &norm.n) *= x->dim[d];
  norm.scale = input == 0 ? node_input(cuda_view(program)->graph, node, 1)->shape : (struct shape){0};
  own->row_wise.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  return rows_init(own, &norm);
}

/* X, scale -> Y */
static bool prepare_rms(struct backend_program *program, const struct node *node) {
  struct cuda_row_step own = cuda_row_step_of(ROW_RMS);
  struct cuda_step *step;
  if (!rms_init(&own, program, node, 0))
    return false;
  step = cuda_step_new(program, node);
  own.a = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.scale = read_vector(program, step, 1);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_row_step_end(program, step, &own);
  return true;
}

/* dY, dY scale, X -> dX, dY X / rms */
static bool prepare_rms_grad(struct backend_program *program, const struct node *node) {
  struct cuda_row_step own = cuda_row_step_of(ROW_RMS_GRAD);
  struct cuda_step *step;
  if (!rms_init(&own, program, node, 2))
    return false;
  step = cuda_step_new(program, node);
  own.c = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.a = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  own.b = cuda_read(program, step, node->inputs[2], CUDA_ANY_TYPE, CUDA_DENSE);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.out2 = cuda_write(program, step, node->outputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_row_step_end(program, step, &own);
  return true;
}

const struct cuda_kernel cuda_kernel_group_normalization = {.op = "GroupNormalization",
                                                            .prepare = prepare_group};
const struct cuda_kernel cuda_kernel_instance_normalization = {.op = "InstanceNormalization",
                                                               .prepare = prepare_instance};
const struct cuda_kernel cuda_kernel_layer_normalization = {.op = "LayerNormalization",
                                                            .prepare = prepare_layer};
const struct cuda_kernel cuda_kernel_rms_normalization = {.op = "RMSNormalization", .prepare = prepare_rms};
const struct cuda_kernel cuda_kernel_rms_normalization_grad = {.op = "RMSNormalizationGrad",
                                                               .prepare = prepare_rms_grad};
const struct cuda_kernel cuda_kernel_row_norm_grad = {.op = "RowNormGrad", .prepare = prepare_grad};

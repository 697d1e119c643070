/* Batch norm: one fold of each channel for its moments, which are exact sums in f64 rounded once, and one
   pass that applies them; likewise for the gradient. In the layout that x has. */
#include "common/ops/batch_norm.h"

#include "worker/backend/cuda/fold.h"
#include "worker/backend/cuda/spread.h"

struct batch_norm_step {
  struct cuda_folding folding;
  struct cuda_spreading spreading;
  bool has_folding;
};

static int enqueue_batch_norm(struct backend_program *program, const struct cuda_step *step,
                              cudaStream_t stream, struct err *err) {
  const struct batch_norm_step *own = step->details;
  (void)program;
  if (own->has_folding && cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  return cuda_spreading_enqueue(&own->spreading, step, stream, err);
}

static void end_step(struct backend_program *program, struct cuda_step *step,
                     const struct batch_norm_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_batch_norm;
  cuda_step_end(program, step);
}

static int read_vector(struct backend_program *program, struct cuda_step *step, int input) {
  return cuda_read(program, step, step->node->inputs[input], CUDA_F32, CUDA_DENSE);
}

/* An output over channels; bytes of the step's own where the node does not have it. */
static int write_vector(struct backend_program *program, struct cuda_step *step, int output,
                        int64_t channels) {
  int arg = cuda_write_optional(program, step, output, CUDA_F32, CUDA_DENSE);
  return arg < 0 ? cuda_rows_scratch(program, step, channels) : arg;
}

/* BatchNormTraining: X, scale, bias -> Y, mean, variance, inv_std */
static bool prepare_training(struct backend_program *program, const struct node *node) {
  struct batch_norm_step own = {.folding = cuda_folding_of(FOLD_MOMENTS, FINISH_MOMENTS),
                                .spreading = cuda_spreading_of(SPREAD_NORM),
                                .has_folding = true};
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[0]);
  struct cuda_rows rows;
  struct cuda_step *step;
  if (!cuda_rows_of_channels(&rows, &node_input(cuda_view(program)->graph, node, 0)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  own.folding.fold.rows = own.spreading.spread.rows = rows;
  own.folding.fold.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  own.spreading.x = own.folding.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  own.spreading.row[2] = read_vector(program, step, 1);
  own.spreading.row[3] = read_vector(program, step, 2);
  own.spreading.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  for (int o = 0; o < 3; o++)
    own.folding.out[o] = write_vector(program, step, o + 1, rows.rows);
  own.spreading.row[0] = own.folding.out[0];
  own.spreading.row[1] = own.folding.out[2];
  cuda_folding_plan(program, step, &own.folding);
  end_step(program, step, &own);
  return true;
}

/* BatchNormalization by the statistics that are its inputs: X, scale, bias, mean, variance -> Y */
static bool prepare_inference(struct backend_program *program, const struct node *node) {
  struct batch_norm_step own = {.spreading = cuda_spreading_of(SPREAD_VARIANCE)};
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[0]);
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_step *step;
  if (node->n_outputs > 1 || (graph->opset >= 14 && node_attr_int(node, "training_mode", 0)) ||
      !cuda_rows_of_channels(&own.spreading.spread.rows, &node_input(graph, node, 0)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  own.spreading.spread.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  own.spreading.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  own.spreading.row[0] = read_vector(program, step, 3);
  own.spreading.row[1] = read_vector(program, step, 4);
  own.spreading.row[2] = read_vector(program, step, 1);
  own.spreading.row[3] = read_vector(program, step, 2);
  own.spreading.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  end_step(program, step, &own);
  return true;
}

/* BatchNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dbias */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct batch_norm_step own = {.folding = cuda_folding_of(FOLD_GRADIENTS, FINISH_BOTH),
                                .spreading = cuda_spreading_of(SPREAD_NORM_GRAD),
                                .has_folding = true};
  struct cuda_folding *folding = &own.folding;
  struct cuda_spreading *spreading = &own.spreading;
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[1]);
  struct cuda_rows rows;
  struct cuda_step *step;
  if (!cuda_rows_of_channels(&rows, &node_input(cuda_view(program)->graph, node, 1)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  folding->fold.rows = spreading->spread.rows = rows;
  spreading->dy = folding->other = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  spreading->x = folding->x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, layout);
  spreading->row[2] = read_vector(program, step, 2);
  spreading->row[0] = folding->mean = read_vector(program, step, 3);
  spreading->row[1] = folding->inv_std = read_vector(program, step, 4);
  spreading->out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  spreading->row[3] = folding->out[0] = write_vector(program, step, 1, rows.rows);
  spreading->row[4] = folding->out[1] = write_vector(program, step, 2, rows.rows);
  cuda_folding_plan(program, step, folding);
  end_step(program, step, &own);
  return true;
}

const struct cuda_kernel cuda_kernel_batch_norm_grad = {.op = "BatchNormGrad", .prepare = prepare_grad};
const struct cuda_kernel cuda_kernel_batch_norm_training = {.op = "BatchNormTraining",
                                                            .prepare = prepare_training};
const struct cuda_kernel cuda_kernel_batch_normalization = {.op = "BatchNormalization",
                                                            .prepare = prepare_inference};

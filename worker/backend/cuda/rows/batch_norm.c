/* Batch norm: one fold of each channel for its moments, which are exact sums in f64 rounded once, and one
   pass that applies them; likewise for the gradient. In the layout that x has. Both do what they can of the
   nodes around them (norm_fusion.h). */
#include "model/ops/batch_norm.h"

#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/rows/fold.h"
#include "worker/backend/cuda/rows/norm_fusion.h"

static bool channels_init(struct cuda_channels *channels, struct cuda_rows *rows, const struct shape *x,
                          enum cuda_layout layout) {
  struct batch_norm bn = batch_norm_of(x);
  channels->elems = bn.n * bn.c * bn.inner;
  channels->inner = cuda_divisor_of(layout == CUDA_CHANNELS_LAST ? 1 : bn.inner);
  channels->channels = cuda_divisor_of(bn.c);
  return cuda_rows_of_channels(rows, x, layout);
}

static int read_vector(struct backend_program *program, struct cuda_step *step, int value) {
  return cuda_read(program, step, value, CUDA_F32, CUDA_DENSE);
}

/* An output over channels; bytes of the step's own where the node does not have it. */
static int write_vector(struct backend_program *program, struct cuda_step *step, int output,
                        int64_t channels) {
  int arg = cuda_write_optional(program, step, output, CUDA_F32, CUDA_DENSE);
  return arg < 0 ? cuda_rows_scratch(program, step, channels) : arg;
}

static const float *vector_of(const struct cuda_step *step, int arg) {
  return cuda_arg_tensor(step, arg).data;
}

/* Arguments; -1: none. */
struct norm_step {
  struct cuda_folding folding; /* its outputs are mean and inv_std, unless `variance` is there */
  struct cuda_norm norm;
  int x, residual, y, mean, inv_std, variance, scale, bias;
};

static int enqueue_norm(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct norm_step *own = step->details;
  struct cuda_norm norm = own->norm;
  (void)program;
  if (own->variance < 0 && cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  norm.x = cuda_arg_tensor(step, own->x);
  norm.residual = cuda_arg_tensor(step, own->residual);
  norm.y = cuda_arg_tensor(step, own->y);
  norm.mean = vector_of(step, own->mean);
  norm.inv_std = vector_of(step, own->inv_std);
  norm.variance = vector_of(step, own->variance);
  norm.scale = vector_of(step, own->scale);
  norm.bias = vector_of(step, own->bias);
  cuda_norm_launch(&norm, stream);
  return cuda_check(step->node, cudaGetLastError(), "normalise channels", err);
}

/* What both forms have; ends the step. */
static void end_norm(struct backend_program *program, struct cuda_step *step, struct norm_step *own,
                     enum cuda_layout layout) {
  struct cuda_norm_fusion fusion = cuda_norm_fusion_find(program, step->node);
  own->norm.activation = fusion.activation;
  own->scale = read_vector(program, step, step->node->inputs[1]);
  own->bias = read_vector(program, step, step->node->inputs[2]);
  own->residual = fusion.residual < 0 ? -1 : cuda_read(program, step, fusion.residual, CUDA_ANY_TYPE, layout);
  own->y = cuda_write(program, step, fusion.out, CUDA_ANY_TYPE, layout);
  for (int n = 0; n < fusion.n_nodes; n++)
    cuda_pass_over(program, step->node, fusion.nodes[n]);
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_norm;
  cuda_step_end(program, step);
}

/* BatchNormTraining: X, scale, bias -> Y, mean, variance, inv_std */
static bool prepare_training(struct backend_program *program, const struct node *node) {
  struct norm_step own = {.folding = cuda_folding_of(FOLD_MOMENTS, FINISH_MOMENTS), .variance = -1};
  struct cuda_folding *folding = &own.folding;
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[0]);
  struct cuda_step *step;
  if (!channels_init(&own.norm.channels, &folding->fold.rows,
                     &node_input(cuda_view(program)->graph, node, 0)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  folding->fold.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  own.x = folding->x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  for (int o = 0; o < 3; o++)
    folding->out[o] = write_vector(program, step, o + 1, folding->fold.rows.rows);
  own.mean = folding->out[0];
  own.inv_std = folding->out[2];
  cuda_folding_plan(program, step, folding);
  end_norm(program, step, &own, layout);
  return true;
}

/* BatchNormalization by the statistics that are its inputs: X, scale, bias, mean, variance -> Y */
static bool prepare_inference(struct backend_program *program, const struct node *node) {
  struct norm_step own = {.inv_std = -1};
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[0]);
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_rows rows;
  struct cuda_step *step;
  if (node->n_outputs > 1 || (graph->opset >= 14 && node_attr_int(node, "training_mode", 0)) ||
      !channels_init(&own.norm.channels, &rows, &node_input(graph, node, 0)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  own.norm.epsilon = node_attr_float(node, "epsilon", 1e-5f);
  own.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  own.mean = read_vector(program, step, node->inputs[3]);
  own.variance = read_vector(program, step, node->inputs[4]);
  end_norm(program, step, &own, layout);
  return true;
}

/* Arguments; -1: none. `dy` is what the second pass reads: what the fold has written, if it has. */
struct norm_grad_step {
  struct cuda_folding folding;
  struct cuda_norm_grad grad;
  int dy, dx, scale, bias;
};

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct norm_grad_step *own = step->details;
  const struct cuda_folding *folding = &own->folding;
  struct cuda_norm_grad grad = own->grad;
  (void)program;
  if (cuda_folding_enqueue(folding, step, stream, err))
    return err->code;
  grad.x = cuda_arg_tensor(step, folding->x);
  grad.dy = cuda_arg_tensor(step, own->dy);
  grad.dx = cuda_arg_tensor(step, own->dx);
  grad.mean = vector_of(step, folding->mean);
  grad.inv_std = vector_of(step, folding->inv_std);
  grad.scale = vector_of(step, own->scale);
  grad.dscale = vector_of(step, folding->out[0]);
  grad.dbias = vector_of(step, folding->out[1]);
  grad.masking.bias = vector_of(step, own->bias);
  cuda_norm_grad_launch(&grad, stream);
  return cuda_check(step->node, cudaGetLastError(), "normalise gradients of channels", err);
}

/* What the nodes before left to the gradient; folding->other has been read. */
static void fuse_grad(struct backend_program *program, struct cuda_step *step, struct norm_grad_step *own,
                      const struct cuda_norm_grad_fusion *fusion, enum cuda_layout layout) {
  struct cuda_folding *folding = &own->folding;
  struct cuda_masking *masking = &folding->fold.masking;
  folding->fold.kind = FOLD_MASKED;
  masking->activation = fusion->activation;
  if (fusion->addend >= 0)
    folding->addend = cuda_read(program, step, fusion->addend, CUDA_ANY_TYPE, layout);
  if (fusion->bias >= 0) {
    folding->bias = own->bias = read_vector(program, step, fusion->bias);
    folding->scale = own->scale;
    masking->is_rounded = cuda_type_of(program, fusion->y) == CUDA_BF16;
    own->grad.masking = *masking;
  } else if (fusion->y >= 0) {
    folding->y = cuda_read(program, step, fusion->y, CUDA_ANY_TYPE, layout);
  }
  if (fusion->masked >= 0)
    own->dy = folding->masked =
        cuda_type_of(program, fusion->masked) == step->args[folding->other].tensor.type
            ? cuda_write_over(program, step, fusion->masked, folding->other)
            : cuda_write(program, step, fusion->masked, CUDA_ANY_TYPE, layout);
}

/* BatchNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dbias */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct norm_grad_step own = {.folding = cuda_folding_of(FOLD_GRADIENTS, FINISH_BOTH), .bias = -1};
  const struct cuda_norm_grad_fusion *fusion = program->nodes[node->index].grad_fusion;
  struct cuda_folding *folding = &own.folding;
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[1]);
  struct cuda_step *step;
  if (!channels_init(&own.grad.channels, &folding->fold.rows,
                     &node_input(cuda_view(program)->graph, node, 1)->shape, layout))
    return false;
  step = cuda_step_new(program, node);
  own.grad.n = folding->fold.rows.n;
  own.dy = folding->other =
      cuda_read(program, step, fusion ? fusion->dy : node->inputs[0], CUDA_ANY_TYPE, layout);
  folding->x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, layout);
  own.scale = read_vector(program, step, node->inputs[2]);
  folding->mean = read_vector(program, step, node->inputs[3]);
  folding->inv_std = read_vector(program, step, node->inputs[4]);
  if (fusion)
    fuse_grad(program, step, &own, fusion, layout);
  own.dx = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  folding->out[0] = write_vector(program, step, 1, folding->fold.rows.rows);
  folding->out[1] = write_vector(program, step, 2, folding->fold.rows.rows);
  cuda_folding_plan(program, step, folding);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_grad;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_batch_norm_grad = {.op = "BatchNormGrad", .prepare = prepare_grad};
const struct cuda_kernel cuda_kernel_batch_norm_training = {.op = "BatchNormTraining",
                                                            .prepare = prepare_training};
const struct cuda_kernel cuda_kernel_batch_normalization = {.op = "BatchNormalization",
                                                            .prepare = prepare_inference};

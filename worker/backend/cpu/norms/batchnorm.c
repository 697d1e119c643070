/* Batch normalization in the layout of its input: inference, training and gradient, with the activation that
   follows. */
#include <math.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/norms/moments.h"

/* Tensors of a norm. */
struct norm {
  struct moments moments;
  dnnl_memory_desc_t layout; /* of x, and of the result of x's shape */
  struct fused_activation activation;
};

/* Of x, in the type of a result of x's shape. */
static struct norm *norm_new(struct backend_program *program, const struct node *node, int x, int result) {
  const struct shape *shape = &program->graph->values[x].shape;
  struct norm *norm = arena_new(&program->memory, sizeof *norm);
  dnnl_data_type_t type = cpu_type(program, result);
  norm->layout = layout_typed(cpu_layout_as(program, x, shape->rank, shape->dim), type);
  norm->activation = program->nodes[node->index].fusion.activation;
  if (moments_init(&norm->moments, &norm->layout))
    return norm;
  norm->layout = layout_typed(layout_dense(shape->rank, shape->dim), type);
  CHECK(moments_init(&norm->moments, &norm->layout));
  return norm;
}

/* What the node writes, or reads in place of dy, with its activation. */
static int fused_value(const struct backend_program *program, const struct node *node, int otherwise) {
  const struct cpu_norm_fusion *fusion = &program->nodes[node->index].fusion;
  return fusion->activation.kind == FUSED_NONE ? otherwise : fusion->value;
}

enum { NORM_X, NORM_SCALE, NORM_SHIFT, NORM_MEAN, NORM_VAR, NORM_Y, NORM_INV_STD, NORM_LINE };

static struct moments_norm step_norm(const struct cpu_step *step) {
  const struct norm *norm = step->details;
  const struct cpu_arg *args = step->args;
  return (struct moments_norm){.x = args[NORM_X].data,
                               .scale = args[NORM_SCALE].data,
                               .bias = args[NORM_SHIFT].data,
                               .epsilon = node_attr_float(step->node, "epsilon", 1e-5f),
                               .activation = norm->activation,
                               .mean = args[NORM_MEAN].data,
                               .variance = args[NORM_VAR].data,
                               .y = args[NORM_Y].data,
                               .line = step->n_args > NORM_LINE ? args[NORM_LINE].data : NULL};
}

static int run_inference(struct backend_program *program, struct cpu_step *step,
                         const struct backend_run *run, struct err *err) {
  const struct norm *norm = step->details;
  struct moments_norm of = step_norm(step);
  (void)program, (void)run, (void)err;
  moments_normalize(&norm->moments, &of);
  return ERR_OK;
}

/* BatchNormalization: X, scale, B, mean, var -> Y */
static bool prepare_inference(struct backend_program *program, const struct node *node) {
  if (node_attr_int(node, "training_mode", 0) != 0 || node->n_outputs > 1)
    return false;
  struct norm *norm = norm_new(program, node, node->inputs[0], node->outputs[0]);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_inference;
  step->details = norm;
  int x = cpu_read(program, step, 0, node->inputs[0], &norm->layout);
  for (int i = NORM_SCALE; i <= NORM_VAR; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  if (norm->activation.kind == FUSED_NONE)
    cpu_write_over(program, step, 0, &norm->layout, x);
  else
    cpu_write(program, step, 0, fused_value(program, node, -1), &norm->layout);
  cpu_step_end(program, step, NULL);
  return true;
}

static int run_training(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  const struct norm *norm = step->details;
  struct moments_norm of = step_norm(step);
  float *inv_std = step->args[NORM_INV_STD].data;
  (void)program, (void)run, (void)err;
  moments_train(&norm->moments, &of);
  for (int64_t c = 0; c < norm->moments.channels; c++)
    inv_std[c] = 1.0f / sqrtf(of.variance[c] + of.epsilon);
  return ERR_OK;
}

static int output_at(const struct node *node, int i) {
  return i < node->n_outputs ? node->outputs[i] : -1;
}

/* BatchNormTraining: X, scale, B -> Y, mean, var, inv_std */
static bool prepare_training(struct backend_program *program, const struct node *node) {
  struct norm *norm = norm_new(program, node, node->inputs[0], node->outputs[0]);
  dnnl_dims_t line_dims = {2, norm->layout.dims[1]};
  dnnl_memory_desc_t vector = layout_dense(1, &norm->layout.dims[1]), line = layout_dense(2, line_dims);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_training;
  step->details = norm;
  cpu_read(program, step, 0, node->inputs[0], &norm->layout);
  cpu_read(program, step, 0, node->inputs[1], NULL);
  cpu_read(program, step, 0, node->inputs[2], NULL);
  cpu_write(program, step, 0, output_at(node, 1), &vector);
  cpu_write(program, step, 0, output_at(node, 2), &vector);
  cpu_write(program, step, 0, fused_value(program, node, node->outputs[0]), &norm->layout);
  cpu_write(program, step, 0, output_at(node, 3), &vector);
  if (norm->activation.kind != FUSED_NONE)
    program->nodes[node->index].workspace = cpu_write(program, step, 0, -1, &line);
  cpu_step_end(program, step, NULL);
  return true;
}

enum { GRAD_DY, GRAD_X, GRAD_SCALE, GRAD_MEAN, GRAD_INV_STD, GRAD_DX, GRAD_DSCALE, GRAD_DBIAS, GRAD_LINE };

static int run_gradient(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  (void)program, (void)run, (void)err;
  const struct norm *norm = step->details;
  const struct cpu_arg *args = step->args;
  const struct moments_gradient gradient = {.dy = args[GRAD_DY].data,
                                            .x = args[GRAD_X].data,
                                            .scale = args[GRAD_SCALE].data,
                                            .mean = args[GRAD_MEAN].data,
                                            .inv_std = args[GRAD_INV_STD].data,
                                            .line = step->n_args > GRAD_LINE ? args[GRAD_LINE].data : NULL,
                                            .activation = norm->activation,
                                            .dx = args[GRAD_DX].data,
                                            .dscale = args[GRAD_DSCALE].data,
                                            .dbias = args[GRAD_DBIAS].data};
  moments_differentiate(&norm->moments, &gradient);
  return ERR_OK;
}

/* BatchNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dB */
static bool prepare_gradient(struct backend_program *program, const struct node *node) {
  struct norm *norm = norm_new(program, node, node->inputs[1], node->outputs[0]);
  dnnl_memory_desc_t vector = layout_dense(1, &norm->layout.dims[1]);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_gradient;
  step->details = norm;
  int dy = cpu_read(program, step, 0, fused_value(program, node, node->inputs[0]), &norm->layout);
  cpu_read(program, step, 0, node->inputs[1], &norm->layout);
  for (int i = GRAD_SCALE; i <= GRAD_INV_STD; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  cpu_write_over(program, step, 0, &norm->layout, dy);
  cpu_write(program, step, 0, output_at(node, 1), &vector);
  cpu_write(program, step, 0, output_at(node, 2), &vector);
  if (norm->activation.kind != FUSED_NONE)
    cpu_use(program, step, 0, program->nodes[node->forward].workspace, NULL);
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_batch_normalization = {"BatchNormalization", prepare_inference};
const struct cpu_kernel cpu_batch_norm_training = {"BatchNormTraining", prepare_training};
const struct cpu_kernel cpu_batch_norm_grad = {"BatchNormGrad", prepare_gradient};

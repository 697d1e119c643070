/* Batch normalization in the layout of its input: inference, training and gradient. */
#include <math.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/norms/moments.h"

/* Of x, and of the result of x's shape. */
static bool normalization_layout(struct backend_program *program, int x, int result,
                                 dnnl_memory_desc_t *layout) {
  const struct shape *shape = &program->graph->values[x].shape;
  if (shape->rank < 2 || shape->rank > 5)
    return false;
  *layout = layout_typed(cpu_layout_as(program, x, shape->rank, shape->dim), cpu_type(program, result));
  return true;
}

static dnnl_primitive_desc_t typed_describe(struct backend_program *program, const struct node *node,
                                            dnnl_prop_kind_t kind, const dnnl_memory_desc_t *layout) {
  const unsigned flags = dnnl_use_scale | dnnl_use_shift | dnnl_use_global_stats;
  dnnl_batch_normalization_desc_t norm;
  float epsilon = node_attr_float(node, "epsilon", 1e-5f);
  if (dnnl_batch_normalization_forward_desc_init(&norm, kind, layout, epsilon, flags))
    return NULL;
  return cpu_describe(program, &norm, NULL, NULL);
}

/* The layout becomes f32 where oneDNN has nothing but its reference loops for bf16. */
static dnnl_primitive_desc_t forward_describe(struct backend_program *program, const struct node *node,
                                              dnnl_prop_kind_t kind, dnnl_memory_desc_t *layout) {
  dnnl_primitive_desc_t desc = typed_describe(program, node, kind, layout);
  if (layout->data_type == dnnl_f32 || cpu_rank(desc) != CPU_RANK_REFERENCE)
    return desc;
  layout->data_type = dnnl_f32;
  return typed_describe(program, node, kind, layout);
}

/* BatchNormalization: X, scale, B, mean, var -> Y */
static bool prepare_inference(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout;
  if (node_attr_int(node, "training_mode", 0) != 0 || node->n_outputs > 1 ||
      !normalization_layout(program, node->inputs[0], node->outputs[0], &layout))
    return false;
  dnnl_primitive_desc_t desc = forward_describe(program, node, dnnl_forward_inference, &layout);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int x = cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_SCALE, node->inputs[1], NULL);
  cpu_read(program, step, DNNL_ARG_SHIFT, node->inputs[2], NULL);
  cpu_read(program, step, DNNL_ARG_MEAN, node->inputs[3], NULL);
  cpu_read(program, step, DNNL_ARG_VARIANCE, node->inputs[4], NULL);
  cpu_write_over(program, step, DNNL_ARG_DST, &layout, x);
  cpu_step_end(program, step, desc);
  return true;
}

enum { TRAINING_X, TRAINING_SCALE, TRAINING_SHIFT, TRAINING_MEAN, TRAINING_VAR, TRAINING_INV_STD };

static int run_training(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  float *mean = step->args[TRAINING_MEAN].data, *var = step->args[TRAINING_VAR].data;
  float *inv_std = step->args[TRAINING_INV_STD].data;
  float epsilon = node_attr_float(step->node, "epsilon", 1e-5f);
  int64_t channels = step->args[TRAINING_VAR].layout.dims[0];
  moments_compute(step->details, step->args[TRAINING_X].data, mean, var);
  int code = cpu_execute(program, step, run, err);
  for (int64_t c = 0; c < channels && !code; c++)
    inv_std[c] = 1.0f / sqrtf(var[c] + epsilon);
  return code;
}

static int output_at(const struct node *node, int i) {
  return i < node->n_outputs ? node->outputs[i] : -1;
}

/* BatchNormTraining: X, scale, B -> Y, mean, var, inv_std */
static bool prepare_training(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout;
  struct moments moments;
  if (!normalization_layout(program, node->inputs[0], node->outputs[0], &layout))
    return false;
  dnnl_primitive_desc_t desc = forward_describe(program, node, dnnl_forward_training, &layout);
  if (!desc || !moments_init(&moments, &layout))
    return false;
  dnnl_memory_desc_t vector = layout_dense(1, &layout.dims[1]);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_training;
  step->details = arena_copy(&program->memory, &moments, sizeof moments);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_SCALE, node->inputs[1], NULL);
  cpu_read(program, step, DNNL_ARG_SHIFT, node->inputs[2], NULL);
  cpu_write(program, step, DNNL_ARG_MEAN, output_at(node, 1), &vector);
  cpu_write(program, step, DNNL_ARG_VARIANCE, output_at(node, 2), &vector);
  cpu_write(program, step, 0, output_at(node, 3), &vector);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  return true;
}

enum { GRAD_DY, GRAD_X, GRAD_SCALE, GRAD_MEAN, GRAD_INV_STD, GRAD_DX, GRAD_DSCALE, GRAD_DBIAS };

static int run_gradient(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  (void)program, (void)run, (void)err;
  const struct cpu_arg *args = step->args;
  const struct moments_gradient gradient = {.dy = args[GRAD_DY].data,
                                            .x = args[GRAD_X].data,
                                            .scale = args[GRAD_SCALE].data,
                                            .mean = args[GRAD_MEAN].data,
                                            .inv_std = args[GRAD_INV_STD].data,
                                            .dx = args[GRAD_DX].data,
                                            .dscale = args[GRAD_DSCALE].data,
                                            .dbias = args[GRAD_DBIAS].data};
  moments_differentiate(step->details, &gradient);
  return ERR_OK;
}

/* BatchNormGrad: dY, X, scale, mean, inv_std -> dX, dscale, dB */
static bool prepare_gradient(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout;
  struct moments moments;
  if (!normalization_layout(program, node->inputs[1], node->outputs[0], &layout) ||
      !moments_init(&moments, &layout))
    return false;
  dnnl_memory_desc_t vector = layout_dense(1, &layout.dims[1]);
  struct cpu_step *step = cpu_step_new(program, node);
  step->run = run_gradient;
  step->details = arena_copy(&program->memory, &moments, sizeof moments);
  int dy = cpu_read(program, step, 0, node->inputs[0], &layout);
  cpu_read(program, step, 0, node->inputs[1], &layout);
  for (int i = GRAD_SCALE; i <= GRAD_INV_STD; i++)
    cpu_read(program, step, 0, node->inputs[i], NULL);
  cpu_write_over(program, step, 0, &layout, dy);
  cpu_write(program, step, 0, output_at(node, 1), &vector);
  cpu_write(program, step, 0, output_at(node, 2), &vector);
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_batch_normalization = {"BatchNormalization", prepare_inference};
const struct cpu_kernel cpu_batch_norm_training = {"BatchNormTraining", prepare_training};
const struct cpu_kernel cpu_batch_norm_grad = {"BatchNormGrad", prepare_gradient};

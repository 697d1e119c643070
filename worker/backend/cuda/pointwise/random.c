/* Dropout, Bernoulli, Multinomial, RandomNormal and RandomUniform. */
#include "worker/backend/cuda/pointwise/random.h"

#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/cuda/pointwise/chain.h"

static struct cuda_random random_of(const struct backend_program *program, const struct node *node) {
  const struct cuda_program_view *view = cuda_view(program);
  return (struct cuda_random){.context = view->context, .fault = view->fault, .node = node->index};
}

struct dropout {
  double ratio; /* where it is not an input */
  bool drops;   /* where the mode is not */
};

/* Arguments of Dropout: x, ratio, y, mask, mode. */
static int enqueue_dropout(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  const struct dropout *own = step->details;
  struct cuda_dropout dropout = {.random = random_of(program, step->node),
                                 .x = step->args[0].tensor,
                                 .y = step->args[2].tensor,
                                 .known = own->ratio,
                                 .drops = own->drops};
  if (step->args[1].buffer >= 0)
    dropout.ratio = step->args[1].tensor.data;
  if (step->args[3].buffer >= 0)
    dropout.mask = step->args[3].tensor.data;
  if (step->args[4].buffer >= 0)
    dropout.mode = step->args[4].tensor.data;
  cuda_dropout_launch(&dropout, stream);
  return cuda_check(step->node, cudaGetLastError(), "start a dropout", err);
}

/* Whether a dropout drops, if it is known. */
static bool is_dropping(const struct graph *graph, const struct node *node, bool *is_known) {
  const struct value *mode = node_input(graph, node, 2);
  *is_known = graph->is_training || !mode || mode->kind == VALUE_CONSTANT;
  return graph->is_training || (mode && *is_known && *(const uint8_t *)mode->data != 0);
}

/* Mostly it is part of a chain. One that drops nothing has x's bytes, where nobody asks for its mask and its
   ratio is no matter of data. */
static bool prepare_dropout(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *ratio_input = node_input(graph, node, 1);
  int mask = node->n_outputs > 1 ? node->outputs[1] : -1;
  bool is_known, drops = is_dropping(graph, node, &is_known);
  if (drops && cuda_chain_add(program, node))
    return true;
  cuda_chain_flush(program);
  if (is_known && !drops && mask < 0 && (!ratio_input || ratio_input->data)) {
    cuda_alias(program, node->outputs[0], node->inputs[0]);
    return true;
  }
  struct dropout *own = arena_new(cuda_view(program)->memory, sizeof *own);
  struct cuda_step *step = cuda_step_new(program, node);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->n_inputs > 1 ? node->inputs[1] : -1, CUDA_F32, CUDA_DENSE);
  if (cuda_type_of(program, node->outputs[0]) == step->args[x].tensor.type)
    cuda_write_over(program, step, node->outputs[0], x);
  else
    cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, mask, CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, is_known ? -1 : node->inputs[2], CUDA_ANY_TYPE, CUDA_DENSE);
  own->ratio = graph->opset < 12 ? node_attr_float(node, "ratio", 0.5f) : 0.5;
  own->drops = drops;
  step->details = own;
  step->enqueue = enqueue_dropout;
  cuda_step_end(program, step);
  return true;
}

static int enqueue_draw(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  struct cuda_random random = random_of(program, step->node);
  cuda_draw_launch(&random, step->details, &step->args[0].tensor, &step->args[1].tensor, stream);
  return cuda_check(step->node, cudaGetLastError(), "start drawing", err);
}

static bool prepare_draw(struct backend_program *program, const struct node *node,
                         struct cuda_distribution distribution) {
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, distribution.what == DRAW_BERNOULLI ? node->inputs[0] : -1, CUDA_ANY_TYPE,
            CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  step->details = arena_copy(cuda_view(program)->memory, &distribution, sizeof distribution);
  step->enqueue = enqueue_draw;
  cuda_step_end(program, step);
  return true;
}

static bool prepare_bernoulli(struct backend_program *program, const struct node *node) {
  return prepare_draw(program, node, (struct cuda_distribution){.what = DRAW_BERNOULLI});
}

static bool prepare_normal(struct backend_program *program, const struct node *node) {
  float mean = node_attr_float(node, "mean", 0.0f), scale = node_attr_float(node, "scale", 1.0f);
  return prepare_draw(program, node, (struct cuda_distribution){DRAW_NORMAL, mean, scale});
}

static bool prepare_uniform(struct backend_program *program, const struct node *node) {
  float low = node_attr_float(node, "low", 0.0f), high = node_attr_float(node, "high", 1.0f);
  return prepare_draw(program, node, (struct cuda_distribution){DRAW_UNIFORM, low, high - low});
}

/* Arguments of Multinomial: x, the classes, scratch. */
static int enqueue_multinomial(struct backend_program *program, const struct cuda_step *step,
                               cudaStream_t stream, struct err *err) {
  struct cuda_multinomial multinomial = {.random = random_of(program, step->node),
                                         .x = step->args[0].tensor,
                                         .out = step->args[1].tensor,
                                         .sums = step->args[2].tensor.data};
  cuda_multinomial_launch(&multinomial, stream);
  return cuda_check(step->node, cudaGetLastError(), "start drawing classes", err);
}

static bool prepare_multinomial(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = cuda_step_new(program, node);
  int x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_scratch(program, step, (size_t)step->args[x].tensor.elems * sizeof(double));
  step->enqueue = enqueue_multinomial;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_bernoulli = {.op = "Bernoulli", .prepare = prepare_bernoulli};
const struct cuda_kernel cuda_kernel_dropout = {
    .op = "Dropout", .prepare = prepare_dropout, .is_chained = true};
const struct cuda_kernel cuda_kernel_multinomial = {.op = "Multinomial", .prepare = prepare_multinomial};
const struct cuda_kernel cuda_kernel_random_normal = {.op = "RandomNormal", .prepare = prepare_normal};
const struct cuda_kernel cuda_kernel_random_normal_like = {.op = "RandomNormalLike",
                                                           .prepare = prepare_normal};
const struct cuda_kernel cuda_kernel_random_uniform = {.op = "RandomUniform", .prepare = prepare_uniform};
const struct cuda_kernel cuda_kernel_random_uniform_like = {.op = "RandomUniformLike",
                                                            .prepare = prepare_uniform};

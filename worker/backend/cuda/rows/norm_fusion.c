/* What batch norms and their gradients do beside their own work. Counted in passes over a tensor: an inner
   norm with ReLU is 5 forward and 8 backward by itself, 3 and 5 fused; one with a residual 6 and, with the
   sum of gradients that comes before, 9; fused 4 and 8. */
#include "worker/backend/cuda/rows/norm_fusion.h"

#include <string.h>

#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/rows/rows.h"
#include "worker/backend/node.h"

static bool is_op(const struct node *node, const char *name) {
  return node && strcmp(node->op->name, name) == 0;
}

static bool is_same_shape(const struct graph *graph, int a, int b) {
  return graph->values[a].dtype == DTYPE_F32 && graph->values[b].dtype == DTYPE_F32 &&
         shape_is_same(&graph->values[a].shape, &graph->values[b].shape);
}

static const struct node *producer_of(const struct graph *graph, int value) {
  return graph->values[value].kind == VALUE_RESULT ? graph->nodes[graph->values[value].producer] : NULL;
}

/* How often nodes read the value; *first: the first that does. */
static int count_readers(const struct backend_program *program, int value, const struct node **first) {
  const struct graph *graph = program->graph;
  int n = 0;
  *first = NULL;
  for (int k = 0; k <= program->values[value].last_node; k++)
    for (int i = 0; i < graph->nodes[k]->n_inputs; i++)
      if (graph->nodes[k]->inputs[i] == value && n++ == 0)
        *first = graph->nodes[k];
  return n;
}

/* NULL if others read it, too. */
static const struct node *only_reader(const struct backend_program *program, int value) {
  const struct node *reader;
  return !program->values[value].is_watched && count_readers(program, value, &reader) == 1 ? reader : NULL;
}

/* A sum of two tensors of the result's shape. */
static bool is_sum(const struct graph *graph, const struct node *node) {
  return (is_op(node, "Add") || is_op(node, "Sum")) && node->n_inputs == 2 &&
         is_same_shape(graph, node->inputs[0], node->outputs[0]) &&
         is_same_shape(graph, node->inputs[1], node->outputs[0]);
}

/* Whether a step before the node writes the value. What a gradient's fusion writes comes later than the graph
   has it, what a norm's does earlier. */
static bool is_ready(const struct backend_program *program, int value) {
  return !producer_of(program->graph, value) || program->values[value].buffer >= 0;
}

static void fusion_take(struct cuda_norm_fusion *fusion, const struct node *node) {
  fusion->nodes[fusion->n_nodes++] = node->index;
  fusion->out = node->outputs[0];
}

struct cuda_norm_fusion cuda_norm_fusion_find(const struct backend_program *program,
                                              const struct node *node) {
  const struct graph *graph = program->graph;
  struct cuda_norm_fusion fusion = {.residual = -1, .out = node->outputs[0]};
  const struct node *reader = only_reader(program, fusion.out);
  if (reader && is_sum(graph, reader)) {
    int other = reader->inputs[reader->inputs[0] == fusion.out];
    if (is_ready(program, other)) {
      fusion.residual = other;
      fusion_take(&fusion, reader);
      reader = only_reader(program, fusion.out);
    }
  }
  if (reader && reader->inputs[0] == fusion.out && fused_activation_read(graph, reader, &fusion.activation))
    fusion_take(&fusion, reader);
  return fusion;
}

/* A result that nobody but nodes from `grad` on reads, so that it can be written by that. */
static bool can_wait(const struct backend_program *program, int value, const struct node *grad) {
  const struct node *first;
  for (int i = 1; i < grad->n_inputs; i++)
    if (grad->inputs[i] == value)
      return false;
  return !program->values[value].is_watched && count_readers(program, value, &first) > 0 &&
         first->index >= grad->index;
}

/* The node's work can be left to a later one. */
static bool can_take(const struct backend_program *program, const struct node *node) {
  return node && program->nodes[node->index].done_by < 0;
}

/* A chain would have it in a register: to take its reader out of the chain would cost what it saves. */
static bool is_in_chain(const struct backend_program *program, int value) {
  const struct node *producer = producer_of(program->graph, value);
  return can_take(program, producer) && cuda_is_chained(producer);
}

/* The sum of two gradients that the value is, where nobody else reads it: *dy and *addend. */
static const struct node *take_sum(const struct backend_program *program, int value,
                                   struct cuda_norm_grad_fusion *fusion) {
  const struct node *sum = producer_of(program->graph, value);
  if (!can_take(program, sum) || !is_sum(program->graph, sum))
    return NULL;
  for (int i = 0; i < 2; i++) /* what is no result may be a bias, which products add themselves */
    if (!producer_of(program->graph, sum->inputs[i]) || is_in_chain(program, sum->inputs[i]))
      return NULL;
  fusion->dy = sum->inputs[0];
  fusion->addend = sum->inputs[1];
  return sum;
}

/* Whether y is the activation of the very norm whose gradient this is, and nothing else: then x and what
   channels have give it again. Sets fusion->bias. */
static bool can_compute_again(const struct backend_program *program, const struct node *grad,
                              struct cuda_norm_grad_fusion *fusion) {
  const struct graph *graph = program->graph;
  const struct node *activation = producer_of(graph, fusion->y);
  const struct node *norm = activation ? producer_of(graph, activation->inputs[0]) : NULL;
  if (!is_op(norm, "BatchNormTraining") || norm->inputs[0] != grad->inputs[1] ||
      norm->inputs[1] != grad->inputs[2] || norm->outputs[1] != grad->inputs[3] ||
      norm->outputs[3] != grad->inputs[4])
    return false;
  struct cuda_norm_fusion forward = cuda_norm_fusion_find(program, norm);
  fusion->bias = norm->inputs[2];
  return forward.out == fusion->y && forward.residual < 0 &&
         forward.activation.kind == fusion->activation.kind &&
         forward.activation.low == fusion->activation.low &&
         forward.activation.high == fusion->activation.high;
}

/* Returns the nodes that are taken, the last first; how many. */
static int find_taken(const struct backend_program *program, const struct node *grad,
                      struct cuda_norm_grad_fusion *fusion, const struct node *taken[2]) {
  const struct graph *graph = program->graph;
  const struct node *mask = producer_of(graph, grad->inputs[0]), *sum;
  int masked = grad->inputs[0];
  const struct node *reader;
  *fusion = (struct cuda_norm_grad_fusion){.dy = masked, .addend = -1, .y = -1, .bias = -1, .masked = -1};
  if (!can_take(program, mask) || !can_wait(program, masked, grad))
    return 0;
  taken[0] = mask;
  if (!fused_activation_read_gradient(graph, mask, &fusion->activation)) {
    fusion->masked = masked;
    return take_sum(program, masked, fusion) != NULL;
  }
  fusion->dy = mask->inputs[0];
  fusion->y = mask->inputs[1];
  if (count_readers(program, masked, &reader) == 1 && can_compute_again(program, grad, fusion))
    return 1;
  fusion->bias = -1;
  fusion->masked = masked;
  sum = only_reader(program, fusion->dy) ? take_sum(program, fusion->dy, fusion) : NULL;
  if (sum) {
    taken[1] = sum;
    return 2;
  }
  return !is_in_chain(program, fusion->dy);
}

/* A gradient that our kernels take, whatever its layout. */
static bool is_taken(const struct graph *graph, const struct node *grad) {
  struct cuda_rows rows;
  return is_op(grad, "BatchNormGrad") && node_has_elements(graph, grad, grad->n_inputs) &&
         cuda_rows_of_channels(&rows, &node_input(graph, grad, 1)->shape, CUDA_DENSE);
}

static void read_later(struct backend_program *program, int value, const struct node *node) {
  if (value >= 0 && program->values[value].last_node < node->index)
    program->values[value].last_node = node->index;
}

void cuda_norm_grads_survey(struct backend_program *program) {
  const struct graph *graph = program->graph;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *grad = graph->nodes[n], *taken[2];
    struct cuda_norm_grad_fusion fusion;
    int n_taken = 0;
    if (is_taken(graph, grad))
      n_taken = find_taken(program, grad, &fusion, taken);
    if (n_taken == 0)
      continue;
    for (int t = 0; t < n_taken; t++)
      cuda_pass_over(program, grad, taken[t]->index);
    read_later(program, fusion.dy, grad);
    read_later(program, fusion.addend, grad);
    read_later(program, fusion.bias >= 0 ? fusion.bias : fusion.y, grad);
    program->nodes[n].grad_fusion = arena_copy(&program->memory, &fusion, sizeof fusion);
  }
}

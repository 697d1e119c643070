/* Which activations batch norms take, and which gradients of activations. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"

static bool is_op(const struct node *node, const char *name) {
  return strcmp(node->op->name, name) == 0;
}

/* A norm that its kernel takes. */
static bool is_norm(const struct graph *graph, const struct node *node) {
  return (is_op(node, "BatchNormTraining") ||
          (is_op(node, "BatchNormalization") && node_attr_int(node, "training_mode", 0) == 0 &&
           node->n_outputs == 1)) &&
         cpu_suits_kernels(graph, node);
}

/* The one node that reads the value, once. NULL if there is another or none, or the caller watches it. */
static const struct node *only_reader(const struct backend_program *program, int value) {
  const struct cpu_value *known = &program->values[value];
  return known->n_reads == 1 && !known->is_watched ? program->graph->nodes[known->last_node] : NULL;
}

/* Padding stays 0. */
static bool keeps_zero(const struct fused_activation *activation) {
  return activation->kind == FUSED_RELU || (activation->low <= 0 && activation->high >= 0);
}

/* The activation behind the norm. */
static void norm_survey(struct backend_program *program, const struct node *norm) {
  const struct node *reader = only_reader(program, norm->outputs[0]);
  struct fused_activation activation;
  if (!reader || !fused_activation_read(program->graph, reader, &activation) || !keeps_zero(&activation) ||
      reader->inputs[0] != norm->outputs[0] ||
      cpu_type(program, norm->outputs[0]) != cpu_type(program, reader->outputs[0]))
    return;
  program->nodes[norm->index].fusion = (struct cpu_norm_fusion){activation, reader->outputs[0]};
  program->nodes[reader->index].is_passed_over = true;
}

/* The gradient of the norm's activation before the norm's own. What it reads lives until then. */
static void gradient_survey(struct backend_program *program, const struct node *grad) {
  const struct graph *graph = program->graph;
  const struct cpu_norm_fusion *forward = &program->nodes[grad->forward].fusion;
  const struct value *masked = &graph->values[grad->inputs[0]];
  const struct node *mask = masked->kind == VALUE_RESULT ? graph->nodes[masked->producer] : NULL;
  struct fused_activation activation;
  if (!forward->activation.kind || !mask || only_reader(program, grad->inputs[0]) != grad ||
      !fused_activation_read_gradient(graph, mask, &activation) || mask->inputs[1] != forward->value ||
      cpu_type(program, forward->value) != cpu_type(program, grad->outputs[0]))
    return;
  int dy = mask->inputs[0];
  program->nodes[grad->index].fusion = (struct cpu_norm_fusion){forward->activation, dy};
  program->nodes[mask->index].is_passed_over = true;
  if (program->values[dy].last_node < grad->index)
    program->values[dy].last_node = grad->index;
}

void cpu_norms_survey(struct backend_program *program) {
  const struct graph *graph = program->graph;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (is_norm(graph, node))
      norm_survey(program, node);
    else if (is_op(node, "BatchNormGrad") && node->forward >= 0 && cpu_suits_kernels(graph, node))
      gradient_survey(program, node);
  }
}

/* Stochastic depth in an exported model: a draw of 0 or 1, divided by its probability. In inference the draw
   is its probability, as in Weir's own evaluation (model/model_draws.c). */
#include <string.h>

#include "client/files/export_draws.h"
#include "model/onnx/onnx_uses.h"

static bool is_op(const Onnx__NodeProto *node, const char *op) {
  return node && strcmp(node->op_type, op) == 0;
}

static bool has_attribute(const Onnx__NodeProto *node, const char *name, float other_than) {
  for (size_t a = 0; a < node->n_attribute; a++)
    if (strcmp(node->attribute[a]->name, name) == 0)
      return node->attribute[a]->f != other_than;
  return false;
}

/* Draws from [0, 1). */
static bool is_uniform(const Onnx__NodeProto *node) {
  return (is_op(node, "RandomUniform") || is_op(node, "RandomUniformLike")) &&
         !has_attribute(node, "low", 0) && !has_attribute(node, "high", 1);
}

/* The value that is the probability of the node's drawing 1; NULL if it is no such node. */
static const char *probability_of(const Onnx__GraphProto *graph, const Onnx__NodeProto *node) {
  const Onnx__NodeProto *comparison;
  if (is_op(node, "Bernoulli") && node->n_input == 1 && node->n_attribute == 0)
    return node->input[0];
  if ((!is_op(node, "Cast") && !is_op(node, "CastLike")) || node->n_input == 0)
    return NULL;
  comparison = onnx_producer(graph, node->input[0]);
  if ((!is_op(comparison, "Less") && !is_op(comparison, "LessOrEqual")) || comparison->n_input != 2 ||
      !is_uniform(onnx_producer(graph, comparison->input[0])))
    return NULL;
  return comparison->input[1];
}

void export_expect_draws(Onnx__GraphProto *graph) {
  for (size_t n = 0; n < graph->n_node; n++) {
    const Onnx__NodeProto *node = graph->node[n];
    const char *probability = probability_of(graph, node);
    if (probability && !onnx_is_output(graph, node->output[0]))
      onnx_rename_uses(graph, node->output[0], probability);
  }
}

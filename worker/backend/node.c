/* What backends ask of a node. */
#include "worker/backend/node.h"

#include "model/graph/op.h"

static const int64_t TENSOR_ELEMS_MAX = INT64_C(1) << 48;

int node_check(const struct graph *graph, const struct node *node, struct err *err) {
  char text[160];
  if (node->n_inputs > OP_INPUTS_MAX || node->n_outputs > OP_OUTPUTS_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "%d inputs and %d outputs; at most %d and %d",
                      node->n_inputs, node->n_outputs, OP_INPUTS_MAX, OP_OUTPUTS_MAX);
  for (int o = 0; o < node->n_outputs; o++) {
    if (node->outputs[o] < 0)
      continue;
    const struct value *v = &graph->values[node->outputs[o]];
    int64_t elems = shape_elems(&v->shape);
    if (elems < 0)
      return node_error(node, err, ERR_INVALID, "the shape %s of '%s' is not known",
                        shape_text(&v->shape, text, sizeof text), v->name);
    if (elems > TENSOR_ELEMS_MAX)
      return node_error(node, err, ERR_NO_MEMORY, "'%s' needs %lld elements", v->name, (long long)elems);
  }
  return ERR_OK;
}

static bool have_elements(const struct graph *graph, const int *values, int n) {
  for (int i = 0; i < n; i++)
    if (values[i] >= 0 && shape_elems(&graph->values[values[i]].shape) <= 0)
      return false;
  return true;
}

bool node_has_elements(const struct graph *graph, const struct node *node, int n_inputs) {
  return have_elements(graph, node->inputs, n_inputs < node->n_inputs ? n_inputs : node->n_inputs) &&
         have_elements(graph, node->outputs, node->n_outputs);
}

bool node_is_alias(const struct node *node) {
  if (!(node->op->flags & OP_ALIAS) || node->outputs[0] < 0)
    return false;
  for (int o = 1; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0)
      return false;
  return true;
}

/* Scores that a linear layer computes. */
#include "model/losses/linear.h"

#include <string.h>

#include "model/graph/op.h"

static bool is_op(const struct node *node, const char *name) {
  return node && strcmp(node->op->name, name) == 0 && !*node->op->domain;
}

/* The node that computes the value, if nothing but `readers` inputs of nodes read it. */
static const struct node *sole_producer(const struct graph *graph, int value, int readers) {
  const struct value *v = &graph->values[value];
  for (int n = 0; n < graph->n_nodes; n++)
    for (int i = 0; i < graph->nodes[n]->n_inputs; i++)
      readers -= graph->nodes[n]->inputs[i] == value;
  return v->kind == VALUE_RESULT && readers == 0 ? graph->nodes[v->producer] : NULL;
}

static int64_t last_dim(const struct graph *graph, int value) {
  const struct shape *shape = &graph->values[value].shape;
  return shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
}

/* Behind reshapes that leave rows of classes what they are. */
static const struct node *skip_reshapes(const struct graph *graph, int value, int readers) {
  const struct node *node = sole_producer(graph, value, readers);
  while (node && (node->op->flags & OP_ALIAS) && node->n_outputs == 1 &&
         last_dim(graph, node->inputs[0]) == last_dim(graph, node->outputs[0]))
    node = sole_producer(graph, node->inputs[0], 1);
  return node;
}

/* f32 with one element for each class, which adding repeats for each row. */
static bool is_bias(const struct graph *graph, int value, int64_t classes) {
  const struct value *v = value >= 0 ? &graph->values[value] : NULL;
  return v && v->dtype == DTYPE_F32 && last_dim(graph, value) == classes && shape_elems(&v->shape) == classes;
}

static bool swaps_two(const struct node *node) {
  const struct attr *perm = node_attr(node, "perm");
  return !perm || (perm->n == 2 && perm->ints[0] == 1);
}

static bool take_operands(const struct graph *graph, const struct node *node, struct linear *found) {
  const struct node *transpose;
  found->hidden = node->inputs[0];
  found->weight = node->inputs[1];
  if (graph->values[found->hidden].shape.rank < 2 || graph->values[found->weight].shape.rank != 2)
    return false;
  transpose = graph->values[found->weight].kind == VALUE_RESULT
                  ? graph->nodes[graph->values[found->weight].producer]
                  : NULL;
  if (is_op(transpose, "Transpose") && swaps_two(transpose)) {
    found->weight = transpose->inputs[0];
    found->is_transposed = !found->is_transposed;
  }
  return true;
}

static bool take_gemm(const struct graph *graph, const struct node *node, struct linear *found) {
  int bias = node->n_inputs > 2 ? node->inputs[2] : -1;
  if (node_attr_float(node, "alpha", 1) != 1 || node_attr_int(node, "transA", 0) != 0)
    return false;
  if (bias >= 0 && (found->bias >= 0 || node_attr_float(node, "beta", 1) != 1 ||
                    !is_bias(graph, bias, last_dim(graph, node->outputs[0]))))
    return false;
  found->bias = bias >= 0 ? bias : found->bias;
  found->is_transposed = node_attr_int(node, "transB", 0) != 0;
  return take_operands(graph, node, found);
}

bool linear_find(const struct graph *graph, int scores, struct linear *found) {
  const struct node *node = skip_reshapes(graph, scores, 0);
  int64_t classes = last_dim(graph, scores);
  *found = (struct linear){.bias = -1};
  if (is_op(node, "Add"))
    for (int side = 0; side < 2; side++)
      if (found->bias < 0 && is_bias(graph, node->inputs[side], classes) &&
          shape_elems(&graph->values[node->inputs[!side]].shape) ==
              shape_elems(&graph->values[scores].shape)) {
        found->bias = node->inputs[side];
        node = skip_reshapes(graph, node->inputs[!side], 1);
      }
  if (is_op(node, "Gemm"))
    return take_gemm(graph, node, found);
  return is_op(node, "MatMul") && take_operands(graph, node, found);
}

/* What the backward functions of several ops share. */
#include "model/ops/shared/backward.h"

int backward_unary(struct graph *graph, const char *op, int x) {
  return backward_node(graph, op, VALUES(x), ATTRS_NONE);
}

int backward_binary(struct graph *graph, const char *op, int a, int b) {
  return backward_node(graph, op, VALUES(a, b), ATTRS_NONE);
}

int backward_node(struct graph *graph, const char *op, struct value_list inputs, struct attr_list attrs) {
  return graph_add_node(graph, op, inputs, 1, attrs)->outputs[0];
}

int backward_reshape(struct graph *graph, int x, const struct shape *shape) {
  int dims = graph_add_constant_i64(graph, shape->dim, shape->rank);
  struct attr allowzero = attr_of_int("allowzero", 1);
  return backward_node(graph, "Reshape", VALUES(x, dims), ATTR_LIST(allowzero));
}

int backward_sum_to(struct graph *graph, int x, const struct shape *shape) {
  struct attr attr = attr_of_shape(shape);
  if (shape_is_same(&graph->values[x].shape, shape))
    return x;
  return backward_node(graph, "SumTo", VALUES(x), ATTR_LIST(attr));
}

int backward_broadcast_to(struct graph *graph, int x, const struct shape *shape) {
  struct attr attr = attr_of_shape(shape);
  return backward_node(graph, "BroadcastTo", VALUES(x), ATTR_LIST(attr));
}

int backward_scale(struct graph *graph, int x, float factor) {
  if (factor == 1.0f)
    return x;
  return backward_binary(graph, "Mul", x, graph_add_constant_f32(graph, factor));
}

int backward_keep(struct graph *graph, const struct node *node, int output) {
  struct node *forward = graph->nodes[node->index];
  struct value value = {.kind = VALUE_RESULT, .producer = node->index, .param = -1, .statistic = -1};
  int n = node->n_outputs > output + 1 ? node->n_outputs : output + 1;
  struct err err = ERR_NONE;
  int *outputs;
  if (node_output(graph, node, output))
    return node->outputs[output];
  outputs = arena_new(&graph->arena, (size_t)n * sizeof *outputs);
  for (int i = 0; i < n; i++)
    outputs[i] = i < node->n_outputs ? node->outputs[i] : -1;
  outputs[output] = graph_add_value(graph, value);
  forward->outputs = outputs;
  forward->n_outputs = n;
  CHECK(node->op->infer(graph, node, &err) == ERR_OK);
  return outputs[output];
}

void backward_keep_wanted(struct graph *graph, struct node *node, const bool *is_wanted) {
  int kept = graph->n_values - node->n_outputs;
  CHECK(node->index == graph->n_nodes - 1 && node->outputs[node->n_outputs - 1] == graph->n_values - 1);
  for (int i = 0; i < node->n_outputs; i++) {
    if (is_wanted[i])
      graph->values[kept] = graph->values[node->outputs[i]];
    node->outputs[i] = is_wanted[i] ? kept++ : -1;
  }
  graph->n_values = kept;
}

void backward_add_summed(struct autodiff *ad, struct graph *graph, const struct node *node, int input,
                         int grad) {
  struct shape shape = node_input(graph, node, input)->shape;
  autodiff_add(ad, node, input, backward_sum_to(graph, grad, &shape));
}

struct attr attr_of_int(const char *name, int64_t value) {
  return (struct attr){.name = name, .type = ATTR_INT, .i = value};
}

struct attr attr_of_float(const char *name, float value) {
  return (struct attr){.name = name, .type = ATTR_FLOAT, .f = value};
}

struct attr attr_of_ints(const char *name, const int64_t *values, int n) {
  return (struct attr){.name = name, .type = ATTR_INTS, .ints = values, .n = n};
}

struct attr attr_of_shape(const struct shape *shape) {
  return attr_of_ints("shape", shape->dim, shape->rank);
}

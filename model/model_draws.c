/* Random draws in inference. Exporters write stochastic depth as a draw of 0 or 1 that is divided by its
   probability, in whatever mode the module is. Inference is to be what PyTorch's eval mode is: such a draw
   becomes its expectation, and the quotient one. Draws that are used in any other way stay. */
#include <string.h>

#include "model/graph/op.h"
#include "model/model_parts.h"

static bool is_op(const struct node *node, const char *name) {
  return node && strcmp(node->op->name, name) == 0 && !*node->op->domain;
}

static const struct node *producer_of(const struct graph *graph, const struct node *node, int input) {
  const struct value *value = node_input(graph, node, input);
  return value && value->kind == VALUE_RESULT && value->producer >= 0 ? graph->nodes[value->producer] : NULL;
}

/* Input i is one f32 that is known at load. */
static bool known_scalar(const struct graph *graph, const struct node *node, int input, double *out) {
  const struct value *value = node_input(graph, node, input);
  if (!value || !value->data || value->dtype != DTYPE_F32 || shape_elems(&value->shape) != 1)
    return false;
  *out = *(const float *)value->data;
  return true;
}

/* The part of a uniform draw's range that lies below x. */
static double part_below(const struct node *draw, double x) {
  double low = node_attr_float(draw, "low", 0.0f), high = node_attr_float(draw, "high", 1.0f);
  double part = (x - low) / (high - low);
  return part > 0 ? (part < 1 ? part : 1) : 0;
}

static bool is_uniform(const struct node *node) {
  return is_op(node, "RandomUniform") || is_op(node, "RandomUniformLike");
}

/* The probability that a comparison of a uniform draw with a known number holds. */
static bool comparison_probability(const struct graph *graph, const struct node *node, double *p) {
  bool is_less = is_op(node, "Less") || is_op(node, "LessOrEqual");
  bool is_greater = is_op(node, "Greater") || is_op(node, "GreaterOrEqual");
  double number;
  if (!is_less && !is_greater)
    return false;
  for (int i = 0; i < 2; i++)
    if (is_uniform(producer_of(graph, node, i)) && known_scalar(graph, node, 1 - i, &number)) {
      double below = part_below(producer_of(graph, node, i), number);
      *p = (i == 0) == is_less ? below : 1 - below;
      return true;
    }
  return false;
}

/* The probability that floor(draw + number) is one: how some layers write a draw with that probability. */
static bool floor_probability(const struct graph *graph, const struct node *node, double *p) {
  const struct node *add = producer_of(graph, node, 0), *draw;
  if (!is_op(node, "Floor") || !is_op(add, "Add"))
    return false;
  for (int i = 0; i < 2; i++) {
    draw = producer_of(graph, add, i);
    if (is_uniform(draw) && node_attr_float(draw, "low", 0) == 0 && node_attr_float(draw, "high", 1) == 1 &&
        known_scalar(graph, add, 1 - i, p) && *p >= 0 && *p <= 1)
      return true;
  }
  return false;
}

/* Whether the node gives f32 zeros and ones that are drawn with a known probability. */
static bool draw_probability(const struct graph *graph, const struct node *node, double *p) {
  const struct value *out = node_output(graph, node, 0);
  if (!out || out->dtype != DTYPE_F32)
    return false;
  if (is_op(node, "Bernoulli"))
    return known_scalar(graph, node, 0, p) && *p >= 0 && *p <= 1;
  if (is_op(node, "Cast") || is_op(node, "CastLike")) {
    const struct node *comparison = producer_of(graph, node, 0);
    return comparison && comparison_probability(graph, comparison, p);
  }
  return floor_probability(graph, node, p);
}

/* Makes the node give `value` throughout. */
static void node_fill(struct graph *graph, struct node *node, double value) {
  const struct shape *shape = &node_output(graph, node, 0)->shape;
  int64_t *dims = arena_copy(&graph->arena, shape->dim, (size_t)shape->rank * sizeof *dims);
  struct attr *attr = arena_new(&graph->arena, sizeof *attr);
  int *inputs = arena_new(&graph->arena, sizeof *inputs);
  *attr = (struct attr){.name = "shape", .type = ATTR_INTS, .n = shape->rank, .ints = dims};
  inputs[0] = graph_add_constant_f32(graph, (float)value);
  node->op = op_find("ai.weir", "BroadcastTo");
  node->attrs = attr;
  node->n_attrs = 1;
  node->inputs = inputs;
  node->n_inputs = node->n_outputs = 1;
}

/* A draw with a probability for each element is its own expectation. */
static bool is_plain_bernoulli(const struct graph *graph, const struct node *node) {
  const struct value *out = node_output(graph, node, 0);
  return is_op(node, "Bernoulli") && out && out->dtype == DTYPE_F32;
}

void model_expect_draws(struct graph *graph) {
  for (int n = 0; n < graph->n_nodes; n++) {
    struct node *node = graph->nodes[n];
    double p;
    if (draw_probability(graph, node, &p)) {
      node_fill(graph, node, p);
    } else if (is_plain_bernoulli(graph, node)) {
      node->op = op_find("", "Identity");
      node->n_attrs = 0;
    }
  }
}

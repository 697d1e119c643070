/* Reverse-mode differentiation. The first walk, backwards, finds which nodes a gradient must pass and refuses
   those that have none; the second asks each of them for its gradient nodes. */
#include "model/graph/autodiff.h"

#include <stdlib.h>

#include "model/graph/listing.h"
#include "model/graph/op.h"

struct autodiff {
  struct graph *graph;
  int n_values;     /* before the first gradient */
  bool *leads_back; /* [n_values] f32, and leads back to something wanted */
  int *grads;       /* [n_values] the sum of the contributions so far, -1 before the first */
};

int autodiff_grad(const struct autodiff *ad, const struct node *node, int output) {
  if (output >= node->n_outputs || node->outputs[output] < 0 || node->outputs[output] >= ad->n_values)
    return -1;
  return ad->grads[node->outputs[output]];
}

bool autodiff_wants(const struct autodiff *ad, const struct node *node, int input) {
  return input < node->n_inputs && node->inputs[input] >= 0 && ad->leads_back[node->inputs[input]];
}

static void gradient_contribute(struct autodiff *ad, int value, int grad) {
  struct graph *graph = ad->graph;
  const struct value *to = &graph->values[value], *from = &graph->values[grad];
  CHECK(from->dtype == DTYPE_F32 && shape_is_same(&to->shape, &from->shape));
  if (ad->grads[value] >= 0)
    grad = graph_add_node(graph, "Add", VALUES(ad->grads[value], grad), 1, ATTRS_NONE)->outputs[0];
  ad->grads[value] = grad;
}

void autodiff_add(struct autodiff *ad, const struct node *node, int input, int grad) {
  if (autodiff_wants(ad, node, input))
    gradient_contribute(ad, node->inputs[input], grad);
}

static bool node_wants_any(const struct autodiff *ad, const struct node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    if (autodiff_wants(ad, node, i))
      return true;
  return false;
}

static void mark_leading_back(struct autodiff *ad, const bool *wanted) {
  struct graph *graph = ad->graph;
  for (int v = 0; v < ad->n_values; v++)
    ad->leads_back[v] = wanted[v] && graph->values[v].dtype == DTYPE_F32;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    if (!node_wants_any(ad, node))
      continue;
    for (int o = 0; o < node->n_outputs; o++)
      if (node->outputs[o] >= 0 && graph->values[node->outputs[o]].dtype == DTYPE_F32)
        ad->leads_back[node->outputs[o]] = true;
  }
}

/* Every node that a gradient must pass has a backward function, or all that have none are named. */
static int check_path(const struct autodiff *ad, const int *roots, int n_roots, struct err *err) {
  const struct graph *graph = ad->graph;
  bool *is_reached = mem_new((size_t)ad->n_values);
  struct listing without = {0};
  for (int r = 0; r < n_roots; r++)
    is_reached[roots[r]] = true;
  for (int n = graph->n_nodes - 1; n >= 0; n--) {
    const struct node *node = graph->nodes[n];
    bool is_passed = false;
    for (int o = 0; o < node->n_outputs; o++)
      is_passed |= node->outputs[o] >= 0 && is_reached[node->outputs[o]];
    if (!is_passed || !node_wants_any(ad, node))
      continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (autodiff_wants(ad, node, i))
        is_reached[node->inputs[i]] = true;
    if (!node->op->backward)
      listing_add(&without, "'%s' (%s)", node->name, node->op->name);
  }
  free(is_reached);
  if (without.count == 0)
    return 0;
  return err_set(err, ERR_UNSUPPORTED, "%d node%s between trained weights and the loss no gradient: %s",
                 without.count, without.count == 1 ? " has" : "s have", listing_text(&without));
}

static bool has_grad(const struct autodiff *ad, const struct node *node) {
  for (int o = 0; o < node->n_outputs; o++)
    if (autodiff_grad(ad, node, o) >= 0)
      return true;
  return false;
}

static int walk_back(struct autodiff *ad, struct err *err) {
  struct graph *graph = ad->graph;
  for (int n = graph->n_nodes - 1; n >= 0; n--) {
    const struct node *node = graph->nodes[n];
    int before = graph->n_nodes;
    if (!has_grad(ad, node) || !node_wants_any(ad, node))
      continue;
    if (node->op->backward(ad, graph, node, err))
      return err->code;
    for (int added = before; added < graph->n_nodes; added++)
      graph->nodes[added]->forward = n;
  }
  return 0;
}

int autodiff_run(struct graph *graph, const struct derivative *derivative, int *grads, struct err *err) {
  const bool *wanted = derivative->wanted;
  struct autodiff ad = {.graph = graph, .n_values = graph->n_values};
  int n_values = graph->n_values, code;
  ad.leads_back = mem_new((size_t)n_values);
  ad.grads = mem_new((size_t)n_values * sizeof *ad.grads);
  for (int v = 0; v < n_values; v++)
    ad.grads[v] = -1;
  mark_leading_back(&ad, wanted);
  code = check_path(&ad, derivative->roots, derivative->n_roots, err);
  if (code)
    goto out;
  for (int r = 0; r < derivative->n_roots; r++)
    gradient_contribute(&ad, derivative->roots[r], derivative->seeds[r]);
  code = walk_back(&ad, err);
  if (code)
    goto out;
  for (int v = 0; v < n_values; v++)
    grads[v] = wanted[v] ? ad.grads[v] : -1;
out:
  free(ad.leads_back);
  free(ad.grads);
  return code;
}

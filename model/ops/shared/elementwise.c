/* Backward functions that many elementwise ops share. */
#include "model/ops/shared/elementwise.h"

static int backward_from(struct autodiff *ad, struct graph *graph, const struct node *node, int value) {
  int inputs[] = {autodiff_grad(ad, node, 0), value};
  const char *op = node->op->gradients[0]->name;
  autodiff_add(ad, node, 0, backward_node(graph, op, (struct value_list){inputs, 2}, node_attrs(node)));
  return ERR_OK;
}

int backward_from_input(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  (void)err;
  return backward_from(ad, graph, node, node->inputs[0]);
}

int backward_from_output(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  (void)err;
  return backward_from(ad, graph, node, node->outputs[0]);
}

int backward_zero(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  (void)ad, (void)graph, (void)node, (void)err;
  return ERR_OK;
}

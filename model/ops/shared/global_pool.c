/* Pools over all spatial dimensions. */
#include "model/ops/shared/global_pool.h"

#include "model/ops/shared/infer.h"

int global_pool_check(const struct node *node, const struct shape *x, struct err *err) {
  char text[128];
  if (x->rank >= 2)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "input of shape %s has no channels",
                    shape_text(x, text, sizeof text));
}

struct shape global_pool_shape(const struct shape *x) {
  struct shape y = *x;
  for (int d = 2; d < y.rank; d++)
    y.dim[d] = 1;
  return y;
}

int global_pool_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, y;
  if (infer_check_f32(graph, node, err) || global_pool_check(node, &x, err))
    return err->code;
  y = global_pool_shape(&x);
  return infer_f32(graph, node, 0, &y, err);
}

int64_t global_pool_elems(const struct shape *x) {
  int64_t elems = 1;
  for (int d = 2; d < x->rank; d++)
    elems *= x->dim[d];
  return elems;
}

/* Sums along axes. */
#include "common/ops/reduce.h"

#include <stdlib.h>

#include "common/ops/backward.h"
#include "common/ops/broadcast.h"
#include "common/ops/infer.h"

int reduce_sum_to(const struct op_call *call, const struct shape *from, const struct shape *to, double scale,
                  struct err *err) {
  const float *x = call->in[0].data;
  float *out = call->out[0].data;
  int64_t elems = shape_elems(to);
  double *sums = calloc((size_t)elems + 1, sizeof *sums);
  struct broadcast walk;
  if (!sums)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld sums", (long long)elems);
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run)
    for (int64_t j = 0; j < walk.run; j++)
      sums[walk.at[0] + j * walk.step[0]] += x[j];
  for (int64_t i = 0; i < elems; i++)
    out[i] = (float)(sums[i] * scale);
  free(sums);
  return ERR_OK;
}

int reduce_kept_shape(const struct graph *graph, const struct node *node, struct shape *kept,
                      struct err *err) {
  const int64_t *axes;
  int n, axis;
  *kept = node_input(graph, node, 0)->shape;
  if (infer_ints(graph, node, 1, "axes", &axes, &n, err))
    return err->code;
  if (n == 0 && node_attr_int(node, "noop_with_empty_axes", 0))
    return ERR_OK;
  for (int d = 0; n == 0 && d < kept->rank; d++)
    kept->dim[d] = 1;
  for (int i = 0; i < n; i++) {
    if (infer_axis(node, axes[i], kept->rank, false, &axis, err))
      return err->code;
    kept->dim[axis] = 1;
  }
  return ERR_OK;
}

int reduce_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 0);
  const int64_t *axes;
  struct shape kept, out = {0};
  bool is_reduced[RANK_MAX] = {false};
  int n, axis;
  if (x->dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "input '%s' is %s; only f32 is supported here", x->name,
                      dtype_name(x->dtype));
  if (reduce_kept_shape(graph, node, &kept, err) || infer_ints(graph, node, 1, "axes", &axes, &n, err))
    return err->code;
  if (node_attr_int(node, "keepdims", 1))
    return infer_output(graph, node, 0, DTYPE_F32, &kept, err);
  for (int d = 0; d < kept.rank; d++)
    is_reduced[d] = n == 0 && !node_attr_int(node, "noop_with_empty_axes", 0);
  for (int i = 0; i < n; i++) {
    if (infer_axis(node, axes[i], kept.rank, false, &axis, err))
      return err->code;
    is_reduced[axis] = true;
  }
  for (int d = 0; d < kept.rank; d++)
    if (!is_reduced[d])
      out.dim[out.rank++] = kept.dim[d];
  return infer_output(graph, node, 0, DTYPE_F32, &out, err);
}

int reduce_backward(struct autodiff *ad, struct graph *graph, const struct node *node, float scale,
                    struct err *err) {
  int dy = backward_scale(graph, autodiff_grad(ad, node, 0), scale);
  struct shape x = node_input(graph, node, 0)->shape, kept;
  if (reduce_kept_shape(graph, node, &kept, err))
    return err->code;
  autodiff_add(ad, node, 0, backward_broadcast_to(graph, backward_reshape(graph, dy, &kept), &x));
  return ERR_OK;
}

/* Sums along axes. */
#include "model/ops/shared/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

int reduce_sum_to(const struct op_call *call, const struct shape *from, const struct shape *to, double scale,
                  struct err *err) {
  const float *x = call->in[0].data;
  float *out = call->out[0].data;
  int64_t elems = shape_elems(to);
  double *sums = reduce_totals(call, elems, sizeof *sums, err);
  struct broadcast walk;
  if (!sums)
    return err->code;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run) {
    double *own = sums + walk.at[0], sum = *own;
    for (int64_t j = 0; j < walk.run && !walk.step[0]; j++)
      sum += x[j];
    *own = sum;
    for (int64_t j = 0; j < walk.run && walk.step[0]; j++)
      own[j] += x[j];
  }
  for (int64_t i = 0; i < elems; i++)
    out[i] = (float)(sums[i] * scale);
  free(sums);
  return ERR_OK;
}

int reduce_kept_shape(const struct graph *graph, const struct node *node, struct shape *kept,
                      struct err *err) {
  struct int_list axes;
  int axis;
  *kept = node_input(graph, node, 0)->shape;
  if (infer_ints(graph, node, (struct ints_source){1, "axes"}, &axes, err))
    return err->code;
  if (axes.n == 0 && node_attr_int(node, "noop_with_empty_axes", 0))
    return ERR_OK;
  for (int d = 0; axes.n == 0 && d < kept->rank; d++)
    kept->dim[d] = 1;
  for (int i = 0; i < axes.n; i++) {
    if (infer_axis(node, axes.at[i], kept->rank, &axis, err))
      return err->code;
    kept->dim[axis] = 1;
  }
  return ERR_OK;
}

/* The shape without the reduced axes, unless they are kept. */
static int out_shape(const struct graph *graph, const struct node *node, struct shape *out, struct err *err) {
  struct int_list axes;
  struct shape kept;
  bool is_reduced[RANK_MAX] = {false};
  int axis;
  if (reduce_kept_shape(graph, node, &kept, err) ||
      infer_ints(graph, node, (struct ints_source){1, "axes"}, &axes, err))
    return err->code;
  *out = kept;
  if (node_attr_int(node, "keepdims", 1))
    return ERR_OK;
  for (int d = 0; d < kept.rank; d++)
    is_reduced[d] = axes.n == 0 && !node_attr_int(node, "noop_with_empty_axes", 0);
  for (int i = 0; i < axes.n; i++) {
    if (infer_axis(node, axes.at[i], kept.rank, &axis, err))
      return err->code;
    is_reduced[axis] = true;
  }
  out->rank = 0;
  for (int d = 0; d < kept.rank; d++)
    if (!is_reduced[d])
      out->dim[out->rank++] = kept.dim[d];
  return ERR_OK;
}

static int infer_types(struct graph *graph, const struct node *node, const char *types, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct shape out;
  if (x.dtype == DTYPE_NONE || !strstr(types, dtype_name(x.dtype)))
    return node_error(node, err, ERR_UNSUPPORTED, "input '%s' is %s; supported here: %s", x.name,
                      dtype_name(x.dtype), types);
  if (out_shape(graph, node, &out, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = out}, err);
}

int reduce_infer_f32(struct graph *graph, const struct node *node, struct err *err) {
  struct int_list axes;
  if (infer_ints(graph, node, (struct ints_source){1, "axes"}, &axes, err))
    return err->code;
  if (axes.n == 0 && node_attr_int(node, "noop_with_empty_axes", 0))
    return node_error(node, err, ERR_UNSUPPORTED, "noop_with_empty_axes without axes is not supported here");
  return infer_types(graph, node, "f32", err);
}

int reduce_infer_number(struct graph *graph, const struct node *node, struct err *err) {
  return infer_types(graph, node, "f32, i32, i64", err);
}

int reduce_infer_any(struct graph *graph, const struct node *node, struct err *err) {
  return infer_types(graph, node, "f32, i32, i64, u8, bool", err);
}

int64_t reduce_count(const struct op_call *call) {
  int64_t outs = shape_elems(&call->out[0].shape), count = outs ? shape_elems(&call->in[0].shape) / outs : 0;
  return count ? count : 1;
}

void *reduce_totals(const struct op_call *call, int64_t n, size_t size, struct err *err) {
  void *totals = calloc((size_t)n + 1, size);
  if (!totals)
    node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld totals", (long long)n);
  return totals;
}

static int kept_value(struct graph *graph, const struct node *node, int value) {
  struct err err = ERR_NONE;
  struct shape kept;
  CHECK(reduce_kept_shape(graph, node, &kept, &err) == ERR_OK); /* as infer found */
  return shape_is_same(&graph->values[value].shape, &kept) ? value : backward_reshape(graph, value, &kept);
}

int reduce_kept_grad(const struct autodiff *ad, struct graph *graph, const struct node *node) {
  return kept_value(graph, node, autodiff_grad(ad, node, 0));
}

int reduce_kept_output(struct graph *graph, const struct node *node) {
  return kept_value(graph, node, node->outputs[0]);
}

int reduce_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape dy = node_input(graph, node, 0)->shape, x = node_input(graph, node, 1)->shape, common;
  char left[128], right[128];
  if (infer_check_f32(graph, node, err))
    return err->code;
  if (!broadcast_shapes(&dy, &x, &common) || !shape_is_same(&common, &x))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to %s",
                      shape_text(&dy, left, sizeof left), shape_text(&x, right, sizeof right));
  return infer_f32(graph, node, 0, &x, err);
}

int reduce_backward(struct autodiff *ad, struct graph *graph, const struct node *node, float scale,
                    struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int dy = backward_scale(graph, reduce_kept_grad(ad, graph, node), scale);
  (void)err;
  autodiff_add(ad, node, 0,
               shape_is_same(&graph->values[dy].shape, &x) ? dy : backward_broadcast_to(graph, dy, &x));
  return ERR_OK;
}
